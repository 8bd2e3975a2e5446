# title: tmux and screen
# area: Kernel interfaces
export TERM=xterm
tmux -f /dev/null new-session -d -s s -x 80 -y 24 'bash --norc'; tmux send-keys -t s 'echo marker-$((40+2))' Enter; sleep 1; tmux capture-pane -p -t s | grep -c '^marker-42'; tmux kill-server
export SCREENDIR=/tmp/sc; mkdir -m 700 /tmp/sc; screen -dmS x bash --norc -c 'echo in-screen > /tmp/o; sleep 2'; sleep 1; screen -ls | grep -c '\.x'; cat /tmp/o
