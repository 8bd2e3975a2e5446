#!/bin/bash
# What a machine of the rig runs: guest.sh plain|systemd. The share comes with the
# kernel's parameters. Exit code 1 if anything failed; the host counts.
flavour=$1 share=full only='' part='' prepare=''
for p in $(cat /proc/cmdline); do
	case $p in
	rig.share=*) share=${p#rig.share=} ;;
	rig.run=*) only=${p#rig.run=} ;;
	rig.part=*) part=${p#rig.part=} ;;
	rig.prepare=*) prepare=yes ;;
	esac
done
export PATH=/rig/berm/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root TMPDIR=/tmp
export BERM_BIN=/rig/berm/bin/berm BERM_STATE=/var/lib/berm-rig BERM_SLOW=20 BERM_RIG=$flavour
failed=0

# package DIR LIMIT ARGUMENTS... runs a test binary where its source was.
package() {
	local dir=$1 limit=$2
	shift 2
	echo "##package github.com/bermhq/berm/$dir"
	(cd "/rig/berm/$dir" && timeout -k 10 "$limit" ./package.test -test.v=test2json -test.timeout "$limit" "$@" 2>&1) || failed=1
	echo "##end"
}
timed() {
	local what=$1 began=$SECONDS
	shift
	"$@" 2>&1 | tr '\r' '\n' | tail -n 3
	echo "rig: $what: $((SECONDS - began)) s"
}

echo "rig: $flavour, $share share, Linux $(uname -r), $(nproc) processor(s), $(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MiB, $(cat /proc/self/cgroup)"
mkdir -m 700 -p "$BERM_STATE"
chown 1000:1000 /home/user
[ "$flavour" != systemd ] || systemctl start user@1000.service # before the mount namespaces of tests
if [ "$share" != short ]; then
	timed "first sandbox, with the template" berm run --timeout unlimited -- true
	[ -z "$prepare" ] || exit 0
	timed "next sandbox" berm run --timeout unlimited -- true
fi
case $only$part$share in
?*:*)
	[ -z "$only" ] || package "${only%%:*}" 25m -test.run "${only#*:}"
	;;
hosts*) package cmd/berm 25m -test.run 'TestHosts$' ;;
short)
	[ "$flavour" = systemd ] || package internal/jail 3m
	package cmd/berm 14m -test.run 'TestHosts$/^(root$|root,|the_root|a_user|an_ordinary_user$)'
	;;
full)
	package internal/jail 5m
	package internal/keeper 10m
	package cmd/berm 30m -test.run 'TestHosts$|TestEndings|TestOrdinaryUser|TestScripts/run_(caps|exit|timeout|output|refused)'
	[ "$flavour" = systemd ] || package internal/backend/gvisor 40m
	;;
esac
berm doctor --leaks
[ "$failed" = 0 ] || dmesg | grep -v systemd | tail -n 20
exit $failed
