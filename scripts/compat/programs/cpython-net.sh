# title: CPython's tests: sockets, select, epoll, asyncio
# area: Language test suites
# why: UDPLITE => gVisor has no UDP-Lite.
# why: RFC3542 => gVisor gives ancillary data of IPv6 whole or not at all, where Linux cuts it to a buffer that is too small.
# flags: --timeout 15m
cd /tmp
for m in test_socket test_select test_selectors test_epoll test_poll test_socketserver test_httpservers; do timeout 400 python3 - $m 3>>/tmp/results >/tmp/log 2>&1 <<'P' || echo "$m ended early"
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
