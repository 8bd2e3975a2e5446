#!/usr/bin/env bash
# Boots a distribution's cloud kernel with cgroup v2 under software emulation and
# runs tests of real sandboxes in it. v2rig.sh full|short [PACKAGE:TEST]. What it
# fetches comes through apt, is checked by apt, unpacked and never installed, and
# kept below build/v2rig. Exit code 0: nothing failed, or the machine cannot be
# had here, which is said; 1: something failed. The log is build/test-v2.log.
. "$(dirname "$0")/lib.sh"
share=${1:-full} only=${2:-}
cache=${BERM_RIG_CACHE:-$repo/build/v2rig}
log=$repo/build/test-v2.log
mkdir -p "$cache" build

tally=$repo/build/tally-v2
rm -f "$tally"
go build -trimpath -o build/gotest ./scripts/gotest
go build -trimpath -o build/rig ./scripts/v2rig
out_of_reach() { build/gotest -tally "$tally" -skip "cgroup v2 rig: $*"; say "skipped: $*"; exit 0; }

# What the machine takes.
if ! command -v qemu-system-x86_64 >/dev/null; then
	{ [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || out_of_reach "no qemu-system-x86_64 here (try: sudo apt-get install -y --no-install-recommends qemu-system-x86)"
	(install qemu-system-x86) || out_of_reach "qemu-system-x86 could not be installed"
fi
for tool in apt-get dpkg-deb mke2fs; do command -v "$tool" >/dev/null || out_of_reach "no $tool here"; done

packages="systemd systemd-sysv dbus dbus-user-session libpam-systemd bash coreutils util-linux python3-minimal busybox-static mount
	grep sed mawk findutils tar gzip procps login passwd iproute2 apparmor"
# download DIR PACKAGE... fetches packages and all they need, as if none were there.
download() {
	local dir=$1
	shift
	mkdir -p "$dir/partial"
	apt-get -q -o Debug::NoLocking=1 -o Dir::State::status=/dev/null -o Dir::Cache::archives="$dir" \
		-o APT::Install-Recommends=0 -o APT::Sandbox::User=root -y -d install "$@"
}
# kernel NAME PACKAGE: CACHE/NAME/{vmlinuz,initrd} of the kernel that a package stands for.
kernel() {
	local dir=$cache/$1 real version
	real=$(apt-cache depends "$2" 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }')
	[ -n "$real" ] || return 1
	if [ "$(cat "$dir/of" 2>/dev/null)" != "$real" ]; then
		rm -rf "$dir"
		mkdir -p "$dir/deb"
		(cd "$dir/deb" && apt-get -q -o APT::Sandbox::User=root download "$real") >"$cache/apt.log" 2>&1 || return 1
		dpkg-deb --extract "$dir"/deb/*.deb "$dir/tree" && cp "$dir"/tree/boot/vmlinuz-* "$dir/vmlinuz" || return 1
		rm -rf "$dir/deb"
		echo "$real" >"$dir/of"
	fi
	version=$(basename "$dir"/tree/lib/modules/*)
	build/rig initrd -modules "$dir/tree/lib/modules/$version" -busybox "$cache/busybox" -init scripts/v2rig/init -out "$dir/initrd"
}

key=$( (cat scripts/v2rig/root.sh scripts/v2rig/v2rig.service; echo "$packages") | sha256sum | cut -c 1-16)
if [ "$(cat "$cache/root.of" 2>/dev/null)" != "$key" ]; then
	say "fetching the packages of the machine's root"
	rm -rf "$cache/debs" "$cache/root.of" "$cache/root.ready" "$cache/root.img"
	# shellcheck disable=SC2086
	download "$cache/debs" $packages >"$cache/apt.log" 2>&1 || out_of_reach "its packages cannot be had ($(grep -m 1 -E '^(E|Err)' "$cache/apt.log"))"
	scripts/v2rig/root.sh "$cache/debs" "$cache/tree"
	cp "$cache/tree/bin/busybox" "$cache/busybox"
	mke2fs -q -F -t ext4 -O ^has_journal -d "$cache/tree" "$cache/root.img" 2500M >/dev/null 2>&1
	rm -rf "$cache/tree" "$cache/debs"
	echo "$key" >"$cache/root.of"
fi
kernel stable linux-image-cloud-amd64 || out_of_reach "its kernel cannot be had (see $cache/apt.log)"

# The work disk: programs and test binaries, where the sources would be.
scripts/build.sh
work=$(mktemp -d "$cache/work.XXXXXX")
beside=''
trap '[ -z "$beside" ] || kill "$beside" 2>/dev/null; rm -rf "$work" "$work.img"' EXIT
mkdir -p "$work/berm/bin" "$work/berm/build"
cp scripts/v2rig/plain-init scripts/v2rig/guest.sh "$work/"
cp bin/berm "$work/berm/bin/"
cp build/sandbox build/agent "$work/berm/build/"
for p in internal/jail internal/keeper internal/backend/gvisor cmd/berm; do
	mkdir -p "$work/berm/$p"
	go test -trimpath -ldflags '-s -w' -c -o "$work/berm/$p/package.test" "./$p"
	[ ! -d "$p/testdata" ] || cp -r "$p/testdata" "$work/berm/$p/"
done
mke2fs -q -F -t ext4 -O ^has_journal -d "$work" "$work.img" 400M >/dev/null 2>&1

rm -f "$log.plain"
: >"$log"
# machine KERNEL INIT LIMIT PARAMETERS... runs one; its words are events.
machine() {
	local k=$cache/$1 init=/sbin/init limit=$3
	[ "$2" = systemd ] || init=/rig/plain-init
	shift 3
	nice -n 10 build/rig boot -json -kernel "$k/vmlinuz" -initrd "$k/initrd" -disk "$cache/root.img" -disk "$work.img" \
		-append "quiet rig.init=$init rig.share=$share $* ${only:+rig.run=$only}" -log "$log" -limit "$limit" ${rig_more:-}
}
export -f machine
export cache work share only log
# tested NAME MACHINE... is one whose tests count.
tested() {
	local name=$1
	shift
	build/gotest -tally "$tally" -name "$name" -- bash -c 'machine "$@"' machine "$@" || true
}

# Once, and not for the short share, which does without: the template of the machine's own programs, kept on its disk.
if [ "$share" != short ] && [ ! -e "$cache/root.ready" ]; then
	say "making the machine's template (once)"
	rig_more=-keep machine stable plain 15m rig.prepare=1 >/dev/null || say "it was not finished: each machine makes its own"
	touch "$cache/root.ready"
fi

if [ -n "$only" ]; then
	for init in ${BERM_RIG_INIT:-plain systemd}; do tested "$init: $only" "${BERM_RIG_KERNEL:-stable}" "$init" 30m; done
else
	# Two at once, one processor each: their words and logs are put behind each other.
	log=$log.plain tested "cgroup v2, mounted by hand" stable plain 40m >build/v2rig.plain 2>&1 &
	beside=$!
	tested "cgroup v2, systemd" stable systemd 40m
	if [ "$share" = full ]; then
		if kernel next linux-image-6.12-cloud-amd64; then
			tested "Linux 6.12, systemd, AppArmor" next systemd 30m apparmor=1 security=apparmor rig.part=hosts
		else
			build/gotest -tally "$tally" -skip "Linux 6.12 with AppArmor: this distribution has no such kernel"
		fi
	fi
	wait "$beside"
	beside=''
	cat build/v2rig.plain
	cat "$log.plain" >>"$log"
	rm -f "$log.plain" build/v2rig.plain
fi
say "the log is $log"
exec build/gotest -tally "$tally" -sum
