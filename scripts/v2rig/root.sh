#!/usr/bin/env bash
# root.sh DEBS TREE: unpacks packages into a tree that boots, without running
# anything that is in them. No rights are needed beyond a user namespace.
set -euo pipefail
debs=$1 tree=$2
if [ "$(id -u)" != 0 ]; then exec unshare -r "$0" "$@"; fi
rm -rf "$tree"
mkdir -p "$tree"
for d in "$debs"/*.deb; do dpkg-deb --extract "$d" "$tree"; done
cd "$tree"
rm -rf usr/share/doc usr/share/man usr/share/locale usr/share/i18n var/cache/apt
mkdir -p rig root home/user etc/systemd/system/default.target.wants var/lib/dbus dev proc sys run tmp
cat >etc/passwd <<'X'
root:x:0:0:root:/root:/bin/bash
messagebus:x:100:100::/nonexistent:/usr/sbin/nologin
systemd-network:x:101:101::/:/usr/sbin/nologin
user:x:1000:1000:an ordinary user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
X
cat >etc/group <<'X'
root:x:0:
tty:x:5:
disk:x:6:
kmem:x:15:
shadow:x:42:
utmp:x:43:
messagebus:x:100:
systemd-journal:x:102:
kvm:x:104:
render:x:105:
input:x:106:
audio:x:29:
video:x:44:
dialout:x:20:
cdrom:x:24:
tape:x:26:
lp:x:7:
sgx:x:107:
user:x:1000:
nogroup:x:65534:
X
[ -e bin/sh ] || ln -s bash bin/sh
printf 'root::19000::::::\nuser::19000::::::\n' >etc/shadow
echo rig >etc/hostname
printf '127.0.0.1 localhost rig\n' >etc/hosts
: >etc/machine-id
: >etc/fstab
printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\n' >etc/nsswitch.conf
echo 'auth required pam_permit.so' >etc/pam.d/common-auth
echo 'account required pam_permit.so' >etc/pam.d/common-account
echo 'password required pam_permit.so' >etc/pam.d/common-password
printf 'session required pam_permit.so\nsession optional pam_systemd.so\n' | tee etc/pam.d/common-session >etc/pam.d/common-session-noninteractive
printf 'auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_loginuid.so\nsession optional pam_systemd.so\n' >etc/pam.d/login
cp "$OLDPWD/scripts/v2rig/v2rig.service" etc/systemd/system/
ln -sf ../v2rig.service etc/systemd/system/default.target.wants/v2rig.service
ln -sf /lib/systemd/system/multi-user.target etc/systemd/system/default.target
for u in getty.target serial-getty@ttyS0.service serial-getty@ttyS1.service systemd-firstboot.service systemd-networkd.service systemd-timesyncd.service \
	systemd-resolved.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer man-db.timer dpkg-db-backup.timer systemd-update-utmp.service \
	systemd-udev-settle.service systemd-hwdb-update.service ldconfig.service systemd-journal-catalog-update.service; do
	ln -sf /dev/null "etc/systemd/system/$u"
done
chmod 1777 tmp
chmod 600 etc/shadow
[ -e usr/bin/awk ] || ln -s mawk usr/bin/awk
