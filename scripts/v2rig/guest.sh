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
export BERM_BIN=/rig/berm/bin/berm BERM_STATE=/var/lib/berm-rig BERM_SLOW=10 BERM_RIG=$flavour
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
	if [ -n "$prepare" ]; then
		package internal/backend/gvisor 10m -test.run 'TestServed/^hello$' # it makes one of its own
		exit 0
	fi
	timed "next sandbox" berm run --timeout unlimited -- true
fi
case $only$part$share in
?*:*)
	[ -z "$only" ] || package "${only%%:*}" 25m -test.run "${only#*:}"
	;;
hosts*) package cmd/berm 10m -test.run 'TestHosts$/^(root$|root,_in_a_c|an_ordinary_user$|a_user_with_a_del|Debian|AppArmor|ptrace)' ;;
short)
	[ "$flavour" = systemd ] || package internal/jail 3m
	package cmd/berm 14m -test.run 'TestHosts$/^(root$|root,_in_a_c|the_root|a_user_with|an_ordinary_user$)'
	;;
full)
	# Each subject once; the two machines run side by side.
	if [ "$flavour" = plain ]; then
		package internal/jail 5m
		package internal/backend/gvisor 20m -test.run 'TestSpec|TestServed' -test.skip 'TestServed/^(changes_of_everything|root)$'
		package internal/backend/gvisor 10m -test.run 'TestStacked/^(hello|changes|changes_of_everything|layers|root)$'
		package cmd/berm 10m -test.run 'TestHosts$/^(a_user_with_a_group|the_root_of)'
	else
		package internal/keeper 5m
		package cmd/berm 10m -test.run 'TestEndings'
		package cmd/berm 20m -test.run 'TestHosts$|TestOrdinaryUser'
	fi
	;;
esac
berm doctor --leaks
[ "$failed" = 0 ] || dmesg | grep -v systemd | tail -n 20
exit $failed
