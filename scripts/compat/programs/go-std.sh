# title: Go's tests: strings, sort, encoding, time, archive
# area: Language test suites
# flags: --timeout 15m --memory 4g
export GOFLAGS=-mod=mod GOTOOLCHAIN=local GOCACHE=/tmp/gocache GO111MODULE=auto
cd /usr/lib/go-1.19/src
setsid -w go test -short -v strings bytes sort encoding/json time archive/tar archive/zip compress/gzip bufio 2>/dev/null | sed -nE 's/^(--- [A-Z]+: [^ ]+).*/\1/p; s/^(ok|FAIL)[[:space:]]+([^[:space:]]+).*/\1 \2/p' | sort || true
