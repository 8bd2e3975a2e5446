# title: Xvfb: an X server and a client
# area: Graphics
Xvfb :9 -screen 0 320x240x24 -nolisten tcp >/dev/null 2>&1 & X=$!; for i in $(seq 50); do DISPLAY=:9 xdpyinfo >/dev/null 2>&1 && break; sleep 0.2; done; DISPLAY=:9 xdpyinfo | grep -E 'dimensions|depth of root' | sed 's/ (.*//'; kill $X
