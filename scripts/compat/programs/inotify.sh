# title: inotify: inotifywait and Python's watchdog
# area: Kernel interfaces
mkdir d; inotifywait -q -m -e create,modify,delete,moved_to --format '%e %f' d > ev & W=$!
sleep 1; echo 1 > d/a; sleep 0.3; echo 2 >> d/a; sleep 0.3; mv d/a d/b; sleep 0.3; rm d/b; sleep 1; kill $W; sort -u ev
python3 - <<'P'
import time, os
from watchdog.observers import Observer
from watchdog.events import FileSystemEventHandler
seen=set()
class H(FileSystemEventHandler):
    def on_any_event(self,e): seen.add((e.event_type,os.path.basename(e.src_path)))
o=Observer(); os.mkdir('w'); o.schedule(H(),'w',recursive=True); o.start(); time.sleep(.5)
open('w/x','w').write('1'); os.rename('w/x','w/y'); os.remove('w/y'); time.sleep(1); o.stop(); o.join()
for e in sorted(seen): print(e)
P
