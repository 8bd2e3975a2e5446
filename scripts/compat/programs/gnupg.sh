# title: GnuPG: keys, signatures, its agent over a socket
# area: Tools
export GNUPGHOME=/tmp/g; mkdir -m 700 /tmp/g; gpg --batch --quiet --passphrase '' --quick-generate-key a@example.test ed25519 sign never 2>/dev/null
echo data > f; gpg --batch --quiet --detach-sign f 2>/dev/null; gpg --verify f.sig f 2>&1 | grep -c Good; gpgconf --kill all; echo done
