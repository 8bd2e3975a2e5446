#!/usr/bin/env bash
# Every test of the SDKs: the Python client alone and against a daemon, the
# vectors, kill -9 under a stream, PandaStack's own SDKs, and the fuzzer for
# FUZZ_SECONDS (default 60; 0 for none). Starts a daemon of BERM_BIN (default
# bin/berm) in a state directory of its own, or uses that of BERM_URL and
# BERM_TOKEN. Ends with "N passed, N failed, N skipped", skips with their reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
bin=${BERM_BIN:-$root/bin/berm}
cache=${BERM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berm-compat}
export BERM_COMPAT_CACHE=$cache PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0 skipped=0
add() { # the closing line of a part: N passed, N failed, N skipped
	local line=$1 what n
	for what in passed failed skipped; do
		n=$(grep -oE "[0-9]+ $what" <<<"$line" | grep -oE '[0-9]+' || true)
		printf -v "$what" %d $((${!what} + ${n:-0}))
	done
	[[ $line =~ [0-9]+\ error ]] && failed=$((failed + 1))
	[[ $line =~ [0-9]+\ passed || $line =~ [0-9]+\ skipped ]] || failed=$((failed + 1))
}
out=$(mktemp -d)
pid=
stop() {
	[ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" || true; }
	rm -rf "$out"
}
trap stop EXIT

venv=$cache/sdk-$(cat "$here/python/pyproject.toml" "$here/python/requirements.txt" | sha256sum | cut -c1-16)
if [ ! -e "$venv/ready" ]; then
	rm -rf "$venv"
	mkdir -p "$cache"
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --disable-pip-version-check -r "$here/python/requirements.txt"
	touch "$venv/ready"
fi

if [ -z "${BERM_URL:-}" ]; then
	state=$out/state
	mkdir -m 0755 "$state"
	chmod 0755 "$out"
	"$bin" serve --state "$state" --listen 127.0.0.1:0 >"$out/ready" 2>"$out/log" &
	pid=$!
	for _ in $(seq 600); do
		grep -q '^berm: ready' "$out/ready" && break
		kill -0 "$pid" 2>/dev/null || { cat "$out/log" >&2; exit 1; }
		sleep 0.2
	done
	BERM_URL=$(cat "$state/url") BERM_TOKEN=$(cat "$state/token")
	export BERM_URL BERM_TOKEN
fi

echo "== berm (Python), types"
if (cd "$here/python" && "$venv/bin/mypy" --no-incremental --cache-dir=/dev/null); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "== berm (Python), tests"
(cd "$here/python" && BERM_BIN=$bin timeout 900 "$venv/bin/python" -m pytest -q -p no:cacheprovider) | tee "$out/python" || true
add "$(tail -1 "$out/python")"
PANDASTACK_API=$BERM_URL PANDASTACK_API_KEY=$BERM_TOKEN "$here/compat/run.sh" | tee "$out/compat" || true
add "$(tail -1 "$out/compat")"
if [ "${FUZZ_SECONDS:=60}" != 0 ]; then
	export FUZZ_SECONDS
	echo "== the API's document, fuzzed"
	if "$here/compat/fuzz.sh"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
