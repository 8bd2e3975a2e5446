# Sourced by lib.sh: makes sure that there is a Go which can build this module,
# or says the one line that gets it. It changes no setting of the user's.

want=1.26
release=1.26.8
fetch="curl -fsSL" sudo=sudo
command -v curl >/dev/null || fetch="wget -qO-"
[ "$(id -u)" != 0 ] || sudo=
get_go="$fetch https://go.dev/dl/go$release.linux-amd64.tar.gz | ${sudo:+sudo }sh -c 'rm -rf /usr/local/go && tar -C /usr/local -xz' && export PATH=/usr/local/go/bin:\$PATH"

if ! command -v go >/dev/null; then
	if [ -x /usr/local/go/bin/go ]; then
		PATH=/usr/local/go/bin:$PATH
	else
		die "there is no Go here; Berm is built with Go $want" "try: $get_go"
	fi
fi

# A Go of 1.21 or later fetches the release that go.mod names by itself, unless
# it was told to stay as it is. Older ones do not know how.
if ! have=$(go env GOVERSION 2>&1); then
	say "$have"
	case $have in
	*GOTOOLCHAIN=local*) die "this Go may not fetch the release it needs" "try: export GOTOOLCHAIN=auto" ;;
	*) die "this Go cannot be used; Berm is built with Go $want" "try: $get_go" ;;
	esac
fi
have=${have#go}
if [ "$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
	die "Go $have is too old; Berm is built with Go $want" "try: $get_go"
fi
