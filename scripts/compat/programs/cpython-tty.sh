# title: CPython's tests: pseudo-terminals, curses, readline
# area: Language test suites
# flags: --timeout 15m
cd /tmp
for m in test_pty test_tty test_termios test_openpty test_ioctl; do timeout 400 python3 - $m 3>>/tmp/results >/tmp/log 2>&1 <<'P' || echo "$m ended early"
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
