# title: tmux
# area: Kernel interfaces
export TERM=xterm
tmux -f /dev/null new-session -d -s s -x 80 -y 24 'bash --norc'; tmux send-keys -t s 'echo marker-$((40+2))' Enter; sleep 1; tmux capture-pane -p -t s | grep -c '^marker-42'; tmux kill-server
