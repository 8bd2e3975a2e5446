#!/usr/bin/env bash
# Runs each fuzz target for FUZZTIME (10 s), one after the other. A find is left
# in the package's testdata/fuzz, where it becomes a test of its own.
. "$(dirname "$0")/lib.sh"
failed=0 passed=0
while read -r pkg target; do
	say "$target in $pkg"
	if go test -trimpath -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -parallel 2 "$pkg"; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
done < <(grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|/[^/]*:func | |' | sort -u)
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
