#!/usr/bin/env bash
# The README's first command. Runs an honest program and one that tries to walk
# out, and compares the host before and after without asking berm. Exits
# non-zero if an attempt succeeds or anything is left behind.
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119 # its arguments are for trying it out
caps_here || die "the demo needs caps, and they need root or cgroups delegated to you" "try: sudo env PATH=\"\$PATH\" make demo"
need python3 python3 # the template "host" is made of what this host has

scripts/build.sh
go build -trimpath -o build/hostview ./scripts/hostview
export BERM_STATE=${BERM_STATE:-$repo/.berm}
berm=bin/berm
failed=()
canary=$(mktemp /tmp/berm-canary.XXXXXX)
said=$(mktemp /tmp/berm-demo.XXXXXX) # by hostview, of what was wrong
trap 'rm -f "$canary" "$canary.out" "$said"' EXIT

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || title() { printf '\n%s\n' "$*"; }
# expect CODE WHAT COMMAND... runs it between two looks at the host. Another exit
# code and a host that differs are two failures, each said as what it is.
expect() {
	local want=$1 what=$2 code=0
	shift 2
	: >"$said"
	build/hostview -state "$BERM_STATE" -want "$want" -name "$what" -failures "$said" -- "$@" || code=$?
	local lines
	mapfile -t lines <"$said"
	failed+=("${lines[@]}")
	if [ "$code" != 0 ] && [ ${#lines[@]} = 0 ]; then failed+=("$what: it could not be watched"); fi
}

"$berm" run --timeout 60s -- true || exit 1 # prepares the template, with its own progress

title "1. An honest program: a table and a picture from a CSV"
echo "$ berm run --in examples/sales.csv --out 'out/*.svg:demo-out' examples/report.py"
rm -rf demo-out
expect 0 "report.py" "$berm" run --in examples/sales.csv --out 'out/*.svg:demo-out' examples/report.py
picture=$(find demo-out -name '*.svg' 2>/dev/null | head -n 1)
if [ -n "$picture" ] && grep -q '</svg>' "$picture"; then
	echo "the picture is in $picture"
else
	failed+=("report.py: no picture came back")
fi

title "2. A program that tries to walk out"
secret="canary-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
echo "$secret" >"$canary"
chmod 644 "$canary" # any user of this host may read it
echo "$ berm run --pids 64 --disk 64m examples/walkout.py $canary"
export BERM_DEMO_TOKEN=$secret # in berm's own environment: it must not get in
expect 0 "walkout.py" "$berm" run --pids 64 --disk 64m examples/walkout.py "$canary" > >(tee "$canary.out")
wait $! # for tee
unset BERM_DEMO_TOKEN
if grep -qF "$secret" "$canary.out"; then failed+=("walkout.py: the canary was seen"); fi

title "3. Three more things that only the outside can judge"
echo "$ berm run --memory 128m examples/walkout.py grow"
expect 137 "walkout.py grow" "$berm" run --memory 128m examples/walkout.py grow > >(tee "$canary.out") 2>&1
wait $!
grep -q '^berm: memory' "$canary.out" || failed+=("walkout.py grow: the ending was not memory")
echo
echo "$ berm run --timeout 2s examples/walkout.py stay"
expect 124 "walkout.py stay" "$berm" run --timeout 2s examples/walkout.py stay
echo
echo "$ berm run examples/walkout.py leave"
expect 0 "walkout.py leave" "$berm" run examples/walkout.py leave

title "Result"
if [ ${#failed[@]} != 0 ]; then
	printf 'FAILED: %s\n' "${failed[@]}"
	exit 1
fi
echo "The table and the picture came back; no attempt succeeded; the canary was not seen;"
echo "nothing of these runs is left: no process, mount, cgroup, device, socket or file of theirs."
