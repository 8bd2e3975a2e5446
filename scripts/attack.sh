#!/usr/bin/env bash
# Attacks this build: shortly, or with BERM_PROOF=1 with everything, the public
# tools included. Prints the table, each reason for which something was not run,
# and at last the counts, as gotest -counted takes them.
. "$(dirname "$0")/lib.sh"
need python3 python3
berm=${BERM_BIN:-$repo/bin/berm}
state=${BERM_STATE:-$repo/.berm}
report=$repo/build/attack.json
how=(--short)
if [ -n "${BERM_PROOF:-}" ]; then
	how=()
	"$berm" --state "$state" template build attack-tools --replace >/dev/null 2>"$repo/build/attack-tools.log" ||
		say "the template attack-tools cannot be made, so its tools are not run" "see build/attack-tools.log"
fi
rm -f "$report"
"$berm" --state "$state" attack "${how[@]}" --format json -o "$report" || code=$?
python3 - "$report" "${code:-0}" <<'END'
import collections, json, sys

try:
    r = json.load(open(sys.argv[1]))
except OSError:
    print("no report\n0 passed, 1 failed, 0 skipped")
    sys.exit(1)
skips = collections.Counter(c["evidence"][:160] for c in r["cases"] if c["verdict"] == "not-applicable")
skips.update(b["evidence"][:160] for b in r["benign"] if b.get("not_run"))
left = r["suite"]["cases"] - len(r["cases"])
if left > 0:
    skips["left out of the short run (try: BERM_PROOF=1 make test)"] = left
good = sum(c["verdict"] == "contained" and c["seen"] is not False for c in r["cases"]) + sum(not b["hindered"] and not b.get("not_run") for b in r["benign"])
bad = r["summary"]["findings"] + r["summary"]["inconclusive"]
if int(sys.argv[2]) and not bad:
    bad = 1
for why, n in skips.most_common():
    print("SKIPPED [%d] %s" % (n, why))
print("%d passed, %d failed, %d skipped" % (good, bad, sum(skips.values())))
sys.exit(1 if bad else 0)
END
