# Sourced by the scripts beside it: the working directory, a Go that is new
# enough, and the flags that every build shares. -trimpath is used everywhere,
# tests included, because with and without it are two build caches.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repo=$PWD

say() { printf '%s\n' "$@" >&2; }
die() { say "$@"; exit 1; }

# install PACKAGE... installs Debian packages, if this is root on such a system.
install() {
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		say "installing $*"
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null ||
			die "could not install $*" "try: sudo apt-get install -y $*"
	else
		die "this needs $*" "try: sudo apt-get install -y $*"
	fi
}

# need PROGRAM PACKAGE makes sure that a program is there.
need() { command -v "$1" >/dev/null || install "$2"; }

# shellcheck source=need-go.sh
. scripts/need-go.sh

export CGO_ENABLED=0
