#!/usr/bin/env bash
# Every test: units under the race detector, the house rules, and what goes
# through the real binary (scripts, conformance on gVisor, attacks, soak, kill,
# leaks). BERM_PROOF=1 makes the long ones long. The last line counts.
. "$(dirname "$0")/lib.sh"
caps=yes
# shellcheck disable=SC2119
caps_here || { caps=; say "without root or cgroups delegated to you the tests of real sandboxes are skipped" "try: sudo env PATH=\"\$PATH\" make test"; }
need python3 python3
need git git

scripts/build.sh
export BERM_BIN=$repo/bin/berm BERM_STATE=${BERM_STATE:-$repo/.berm}
ln -sfn sandbox build/runsc # under this name it is gVisor's own command line
export BERM_TEST_RUNSC=$repo/build/runsc
go build -trimpath -o build/gotest ./scripts/gotest
tally=$repo/build/tally
rm -f "$tally"
run() { build/gotest -tally "$tally" "$@" || true; } # the sum at the end decides

# shellcheck source=packages.sh
. scripts/packages.sh
long=20m
[ -z "${BERM_PROOF:-}" ] || long=3h

if command -v "$(go env CC)" >/dev/null; then
	CGO_ENABLED=1 run -name "units, race detector on" -- go test -json -trimpath -race -timeout 10m $light
else
	run -skip "race detector: no C compiler here (try: apt-get install gcc libc6-dev)"
	run -name "units" -- go test -json -trimpath -timeout 10m $light
fi
# One package after the other: their tests count what the host holds.
run -name "real sandboxes and house rules" -- go test -json -trimpath -count=1 -p 1 -timeout "$long" $heavy
if [ -n "$caps" ]; then
	run -name "attack" -counted -- scripts/attack.sh
else
	run -skip "attack: needs root, or cgroups delegated to you"
fi
# Ours and PandaStack's, from their registries, against a daemon.
if [ -z "$caps" ]; then
	run -skip "SDKs: need a daemon, and so root or cgroups delegated to you"
elif ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
	run -skip "SDKs: no python3-venv here (try: apt-get install python3-venv)"
else
	FUZZ_SECONDS=${FUZZ_SECONDS:-$([ -n "${BERM_PROOF:-}" ] && echo 300 || echo 20)} \
		run -name "SDKs and the API's document" -counted -- scripts/daemon.sh sdk/test.sh
fi
run -name "nothing left behind" -command -- bin/berm doctor --leaks

exec build/gotest -tally "$tally" -sum
