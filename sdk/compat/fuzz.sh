#!/usr/bin/env bash
# Sends what the OpenAPI document allows, and what it forbids, to a daemon on
# loopback (BERM_URL, BERM_TOKEN) for a bounded time. A finding is an answer of
# 500 or above that is not a typed 501 or 507, or a daemon that went away.
#   FUZZ_SECONDS=120  FUZZ_SEED=1  FUZZ_EXAMPLES=8
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${BERM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berm-compat}
: "${BERM_URL:?the address of a daemon on loopback}" "${BERM_TOKEN:?an admin token of that daemon}"
case $BERM_URL in
http://127.0.0.1:* | http://localhost:* | http://\[::1\]:*) ;;
*)
	echo "BERM_URL is $BERM_URL, which is no loopback address: refusing to run" >&2
	exit 2
	;;
esac
venv=$cache/fuzz-$(sha256sum "$here/fuzz.txt" | cut -c1-16)
if [ ! -e "$venv/ready" ]; then
	rm -rf "$venv"
	mkdir -p "$cache"
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --disable-pip-version-check -r "$here/fuzz.txt"
	touch "$venv/ready"
fi
exec env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY \
	PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$here/fuzz.py" "$here/../../api/openapi.yaml"
