#!/usr/bin/env bash
# Runs PandaStack's own SDKs, unmodified and pinned by hash, against the daemon
# at PANDASTACK_API (a loopback address; with PANDASTACK_API_KEY). Ends with
# "N passed, N failed, N skipped". What is installed goes to a cache folder
# (BERM_COMPAT_CACHE). Arguments: python, node; none for both.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${BERM_COMPAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berm-compat}
: "${PANDASTACK_API:?the address of a daemon on loopback}" "${PANDASTACK_API_KEY:?a token of that daemon}"
case $PANDASTACK_API in
http://127.0.0.1:* | http://localhost:* | http://\[::1\]:*) ;;
*)
	echo "PANDASTACK_API is $PANDASTACK_API, which is no loopback address: refusing to run" >&2
	exit 2
	;;
esac
# Installing may need the proxies of the environment; the tests never see them.
bare() {
	env -u http_proxy -u https_proxy -u all_proxy -u no_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY -u NO_PROXY \
		-u REQUESTS_CA_BUNDLE -u CURL_CA_BUNDLE -u NETRC "$@"
}
digest() { cat "$@" | sha256sum | cut -c1-16; }

mkdir -p "$cache"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0 broken=0

run_python() {
	local venv
	venv=$cache/venv-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(digest "$here/requirements.txt")
	if [ ! -e "$venv/ready" ]; then
		rm -rf "$venv"
		python3 -m venv "$venv"
		"$venv/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: -r "$here/requirements.txt"
		touch "$venv/ready"
	fi
	echo "== pandastack $("$venv/bin/python" -c 'import pandastack; print(pandastack.__version__)') (Python)"
	(cd "$here/python" && bare PYTHONDONTWRITEBYTECODE=1 timeout 1800 "$venv/bin/pytest" -q -rs -p no:cacheprovider \
		--junit-xml="$out/python.xml" -o junit_family=xunit2 .) || [ $? = 1 ] || broken=1
	[ -e "$out/python.xml" ] || { broken=1; return; }
	read -r t f e s < <("$venv/bin/python" - "$out/python.xml" <<-'EOF'
		import sys, xml.etree.ElementTree as E
		s = E.parse(sys.argv[1]).getroot().find("testsuite").attrib
		print(s["tests"], s["failures"], s["errors"], s["skipped"])
	EOF
	)
	passed=$((passed + t - f - e - s)) failed=$((failed + f + e)) skipped=$((skipped + s))
}

run_node() {
	local dir
	dir=$cache/node-$(digest "$here/node/package-lock.json")
	mkdir -p "$dir"
	if [ ! -e "$dir/ready" ]; then
		cp "$here/node/package.json" "$here/node/package-lock.json" "$dir/"
		(cd "$dir" && npm ci --silent --ignore-scripts --no-audit --no-fund)
		touch "$dir/ready"
	fi
	cp "$here"/node/*.mjs "$dir/"
	echo "== @pandastack/sdk $(node -p "require('$dir/node_modules/@pandastack/sdk/package.json').version") (Node $(node --version))"
	(cd "$dir" && bare timeout 1800 node --test --test-reporter=spec --test-reporter-destination=stdout \
		--test-reporter=tap --test-reporter-destination="$out/node.tap" sdk.test.mjs) || [ $? = 1 ] || broken=1
	count() { sed -n "s/^# $1 //p" "$out/node.tap" | tail -1; }
	[ -n "$(count pass)" ] || { broken=1; return; }
	passed=$((passed + $(count pass))) failed=$((failed + $(count fail) + $(count cancelled))) skipped=$((skipped + $(count skipped)))
}

[ $# -gt 0 ] || set -- python node
for what; do
	case $what in
	python)
		if command -v python3 >/dev/null; then run_python; else echo "skipped: python3 is not installed"; skipped=$((skipped + 1)); fi
		;;
	node)
		if command -v npm >/dev/null; then run_node; else echo "skipped: npm is not installed"; skipped=$((skipped + 1)); fi
		;;
	*)
		echo "usage: run.sh [python] [node]" >&2
		exit 2
		;;
	esac
done
[ $broken = 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
