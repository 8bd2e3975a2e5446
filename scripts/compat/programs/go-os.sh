# title: Go's tests: os, os/exec, path/filepath, syscall, os/signal
# area: Language test suites
# flags: --timeout 15m --memory 4g
export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOCACHE=/tmp/gocache GO111MODULE=auto
cd /usr/lib/go-1.19/src
setsid -w go test -short -v os os/exec path/filepath io/fs syscall os/signal os/user 2>/dev/null | sed -nE 's/^(--- [A-Z]+: [^ ]+).*/\1/p; s/^(ok|FAIL)[[:space:]]+([^[:space:]]+).*/\1 \2/p' | sort || true
