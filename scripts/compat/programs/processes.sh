# title: Processes: signals, groups, rlimits, priorities, /proc
# area: Kernel interfaces
# why: ^pidfd => gVisor has no pidfd_open; programs that use it fall back to waiting for a signal.
# why: ^\[\d+\]$ => The host's processors may begin at another number; inside they begin at 0.
python3 - <<'P'
import os,signal,resource,time,subprocess
p=subprocess.Popen(['sleep','99'],preexec_fn=os.setsid); print(os.getpgid(p.pid)==p.pid); os.killpg(p.pid,15); print(p.wait())
signal.signal(signal.SIGALRM,lambda *a:print('alarm')); signal.setitimer(signal.ITIMER_REAL,.1); time.sleep(.3)
resource.setrlimit(resource.RLIMIT_NOFILE,(64,64)); n=[]
try:
    while 1: n.append(os.dup(0))
except OSError as e: print(e.strerror, len(n)>50)
for f in n: os.close(f)
pid=os.fork()
if not pid: os.kill(os.getpid(),11)
print(os.WTERMSIG(os.waitpid(pid,0)[1])); print(open('/proc/self/comm').read().strip(), os.path.exists('/proc/self/exe'), len(os.listdir('/proc/self/fd'))>2)
try: print('pidfd',os.pidfd_open(os.getpid())>0)
except OSError as e: print('pidfd',e.strerror)
n=os.nice(0); print('nice',os.nice(3)-n); print(sorted(os.sched_getaffinity(0))[:1])
P
