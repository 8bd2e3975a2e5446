#!/usr/bin/env bash
# Runs a command with a daemon of its own: BERM_URL and BERM_TOKEN are set for
# it, and PANDASTACK_API and PANDASTACK_API_KEY as its SDKs want them. Templates
# and programs are taken from the state directory in force, not built again.
#   scripts/daemon.sh COMMAND [ARG...]
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || die "usage: scripts/daemon.sh COMMAND [ARG...]"
berm=${BERM_BIN:-$repo/bin/berm} shared=${BERM_STATE:-$repo/.berm}
state=$(mktemp -d)
daemon=
finish() {
	if [ -n "$daemon" ]; then
		kill -TERM "$daemon" 2>/dev/null || true
		wait "$daemon" || say "the daemon ended with an error:" "$(tail -5 "$state/log")"
	fi
	rm -rf "$state"
}
trap finish EXIT
for d in templates runtimes; do
	[ ! -d "$shared/$d" ] || cp -al "$shared/$d" "$state/" 2>/dev/null || cp -a "$shared/$d" "$state/"
done
BERM_STATE=$state "$berm" serve --state "$state" --listen 127.0.0.1:0 >"$state/ready" 2>"$state/log" &
daemon=$!
for _ in $(seq 600); do
	grep -q '^berm: ready' "$state/ready" && break
	kill -0 "$daemon" 2>/dev/null || die "the daemon did not start:" "$(cat "$state/log")"
	sleep 0.1
done
BERM_URL=$(sed -n 's/^berm: ready //p' "$state/ready") BERM_TOKEN=$(cat "$state/token")
[ -n "$BERM_URL" ] || die "the daemon is not ready after a minute:" "$(cat "$state/log")"
export BERM_URL BERM_TOKEN PANDASTACK_API=$BERM_URL PANDASTACK_API_KEY=$BERM_TOKEN
unset BERM_STATE
"$@"
