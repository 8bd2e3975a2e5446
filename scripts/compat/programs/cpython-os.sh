# title: CPython's tests: os, posix, fcntl, mmap, signals, resource
# area: Language test suites
# why: TestScandir.test_attributes => The overlay of a sandbox numbers a directory in its listing otherwise than stat does.
# why: isgid => The writable layer does not hand a directory's set-group-ID bit on.
# why: copy_file_range => gVisor has no copy_file_range; copying falls back to reads and writes.
# why: fs_holes => gVisor does not find holes with lseek.
# why: test_fcntl_64_bit => gVisor has no F_NOTIFY; inotify is there.
# why: sched|setscheduler => gVisor has one scheduling class and no real-time priorities.
# why: test_prlimit => prlimit for a process that does not exist is EINVAL in gVisor and ESRCH in Linux.
# why: [Pp]idfd => gVisor has no pidfd_open; programs that use it fall back to waiting for a signal.
# flags: --timeout 15m
cd /tmp
for m in test_os test_posix test_fcntl test_mmap test_signal test_resource test_stat test_time; do timeout 400 python3 - $m 3>>/tmp/results >/tmp/log 2>&1 <<'P' || echo "$m ended early"
import os, sys, unittest
out = os.fdopen(os.dup(3), 'w')
class R(unittest.TestResult):
    def say(self, t, r): print(t.id(), r, file=out, flush=True)
    def addSuccess(self, t): self.say(t, 'ok')
    def addError(self, t, e): self.say(t, 'error')
    def addFailure(self, t, e): self.say(t, 'failure')
    def addSkip(self, t, e): self.say(t, 'skipped')
unittest.defaultTestLoader.loadTestsFromName('test.' + sys.argv[1]).run(R())
out.flush(); os._exit(0)
P
done
sort /tmp/results
