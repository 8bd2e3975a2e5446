package deb

// Finish is a script for /bin/sh that a guest's root runs in a root that
// WriteTar wrote, inside a sandbox, with FinishEnv: it configures the packages
// and leaves the root as `apt-get install` would. It needs /dev and /proc, half a
// gigabyte of memory and no network; it is silent but for what packages say, and
// fails with dpkg's status.
//
// The order is that of debootstrap: what creates accounts and the first
// directories, what lets scripts add accounts (chfn asks PAM, and no package says
// so), then the rest as dpkg finds it by dependencies. Before that the
// scripts that come before unpacking have their turn: they find their package
// unpacked, which they are written not to mind. Those that only move files of
// earlier versions are passed over, and so are base-passwd's, whose accounts
// WriteTar writes, and libc6's, which looks at what an upgrade would restart.
// Services are not started, since there is no init. What is slow is done once at
// the end, not by each package: certificates are hashed, and Python files
// compiled, without those of test suites, which nobody imports twice.
const Finish = `set -eu
umask 022
cd /
export DPKG_ADMINDIR=/var/lib/dpkg DPKG_ROOT=
quiet='usr/bin/py3compile usr/sbin/update-ca-certificates'
undo() {
	rm -f usr/sbin/policy-rc.d
	for p in $quiet; do
		if [ -e $p.berm ]; then mv -f $p.berm $p; fi
	done
}
trap undo EXIT
printf '#!/bin/sh\nexit 101\n' >usr/sbin/policy-rc.d
chmod 755 usr/sbin/policy-rc.d
for p in $quiet; do
	[ -f $p ] || continue
	mv $p $p.berm
	printf '#!/bin/sh\nexit 0\n' >$p
	chmod 755 $p
done
for script in $(grep -lvE '^(#.*|[[:space:]]*|set -e.*|dpkg-maintscript-helper .*|exit 0)$' var/lib/dpkg/info/*.preinst); do
	of=${script##*/}
	of=${of%.preinst}
	case $of in base-passwd | libc6 | libc6:*) continue ;; esac
	arch=${of#*:}
	if [ "$arch" = "$of" ]; then read -r arch <var/lib/dpkg/arch; fi
	DPKG_MAINTSCRIPT_PACKAGE=${of%:*} DPKG_MAINTSCRIPT_ARCH=$arch DPKG_MAINTSCRIPT_NAME=preinst \
		DPKG_MAINTSCRIPT_PACKAGE_REFCOUNT=1 "/$script" install </dev/null || {
		echo "the script of $of that comes before unpacking failed" >&2
		exit 1
	}
done
run() { dpkg --force-unsafe-io --force-confold --configure "$@" </dev/null; }
run --force-depends base-passwd
run --force-depends base-files
early=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' libc6 debconf libpam-modules-bin libpam-modules libpam-runtime login passwd 2>/dev/null |
	sed -n 's/^unpacked //p')
if [ -n "$early" ]; then run --force-depends $early; fi
run -a
undo
trap - EXIT
if [ -x usr/sbin/update-ca-certificates ]; then usr/sbin/update-ca-certificates >/dev/null; fi
if [ -d usr/lib/python3/dist-packages ] && [ -x usr/bin/python3 ]; then
	usr/bin/python3 -E -s -m compileall -q -j 0 -x '/tests?/' usr/lib/python3/dist-packages || true
fi
rm -rf var/cache/debconf/*-old var/lib/dpkg/*-old var/log/dpkg.log var/log/alternatives.log
`

// FinishEnv is the environment that Finish runs with.
var FinishEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "LC_ALL=C.UTF-8", "TERM=dumb",
	"DEBIAN_FRONTEND=noninteractive", "DEBCONF_NONINTERACTIVE_SEEN=true", "DEBCONF_NOWARNINGS=yes",
	"PYTHONHASHSEED=0",
}
