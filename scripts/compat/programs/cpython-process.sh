# title: CPython's tests: subprocess, threads, fork, multiprocessing
# area: Language test suites
# why: test_restore_signals => gVisor's /proc/PID/status has no SigIgn, which the test reads.
# flags: --timeout 15m
cd /tmp
for m in test_subprocess test_threading test_thread test_fork1 test_wait4 test_popen test_queue; do timeout 400 python3 - $m 3>>/tmp/results >/tmp/log 2>&1 <<'P' || echo "$m ended early"
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
