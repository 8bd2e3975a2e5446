# shellcheck shell=bash disable=SC2034
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

# caps_here says whether this user can make cgroups, which caps need: root, or
# who was given a part of the tree. It is asked before the minutes of a build;
# berm itself looks closer. Its arguments stand in for the tree and our place in it.
caps_here() {
	[ "$(id -u)" = 0 ] && return
	local root=${1:-/sys/fs/cgroup} self=${2:-/proc/self/cgroup} dir c
	if [ -e "$root/cgroup.controllers" ]; then # v2: our group or one above it
		dir=$root$(sed -n 's/^0:://p' "$self")
		while [ ${#dir} -ge ${#root} ]; do
			if [ -w "$dir" ] && [ "$(grep -owsE 'memory|pids|cpu' "$dir/cgroup.controllers" | wc -l)" = 3 ]; then return; fi
			dir=${dir%/*}
		done
		return 1
	fi
	for c in memory pids cpu; do # v1: our group of each controller
		dir=$root/$c$(sed -n "s/^[0-9]*:\([^:]*,\)*$c\(,[^:]*\)*:\(.*\)/\3/p" "$self")
		[ -e "$dir" ] || dir=$root/$c # in a container the mount's root is what is ours
		[ -w "$dir" ] || return 1
	done
}

# shellcheck source=need-go.sh
. scripts/need-go.sh

export CGO_ENABLED=0
