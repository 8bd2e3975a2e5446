# title: screen
# area: Kernel interfaces
# why: ^(0|1|exit code|in-screen) => screen started detached runs its command but does not stay: gVisor answers EIO on a terminal whose other side nobody has opened yet, where Linux waits. tmux, script and expect open it first.
export SCREENDIR=/tmp/sc; mkdir -m 700 /tmp/sc; screen -dmS x bash --norc -c 'echo in-screen > /tmp/o; sleep 2'; sleep 1; screen -ls | grep -c '\.x'; cat /tmp/o
