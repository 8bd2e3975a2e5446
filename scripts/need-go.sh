# shellcheck shell=bash disable=SC2034
# Sourced by lib.sh: makes sure that there is a Go which can build this module,
# or says the one line that gets it. It changes no setting of the user's.

want=1.26
release=1.26.8
fetch="curl -fsSL -o" sudo=sudo
command -v curl >/dev/null || fetch="wget -qO"
[ "$(id -u)" != 0 ] || sudo=
# An old Go is removed only when all of the new one is here.
get_go="f=\$(mktemp) && $fetch \$f https://go.dev/dl/go$release.linux-amd64.tar.gz && ${sudo:+sudo }sh -c \"tar -tzf \$f >/dev/null && rm -rf /usr/local/go && tar -C /usr/local -xzf \$f\" && rm \$f && export PATH=/usr/local/go/bin:\$PATH"

# go_release GO prints the release that GO would build with. One of 1.21 or later
# fetches the release that go.mod names by itself, unless it was told to stay as
# it is. Older ones do not know how.
go_release() {
	local said
	said=$("$1" env GOVERSION 2>&1) || { printf '%s\n' "$said" && return 1; }
	said=${said##*$'\n'} # it may have told of a download first
	printf '%s\n' "${said#go}"
}
new_enough() { [ "$(printf '%s\n' "$want" "$1" | sort -V | head -n 1)" = "$want" ]; }

first=$(command -v go || true)
have=
if [ -z "$first" ] || ! have=$(go_release "$first") || ! new_enough "$have"; then
	found=
	for other in /usr/local/go/bin/go ~/sdk/go*/bin/go ~/go/bin/go /usr/lib/go-*/bin/go /snap/bin/go; do
		if [ -x "$other" ] && [ "$other" != "$first" ] && release_there=$(go_release "$other") && new_enough "$release_there"; then
			found=$other
			break
		fi
	done
	if [ -n "$found" ]; then
		say "using $found ($release_there): ${first:-no Go} in PATH${first:+ is too old or cannot be used}"
		PATH=$(dirname "$found"):$PATH
	elif [ -z "$first" ]; then
		die "there is no Go here; Berm is built with Go $want" "try: $get_go"
	else
		case $have in
		*GOTOOLCHAIN=local*) die "$have" "this Go may not fetch the release it needs" "try: export GOTOOLCHAIN=auto" ;;
		[0-9]*) die "Go $have is too old; Berm is built with Go $want" "try: $get_go" ;;
		*) die "$have" "this Go cannot be used; Berm is built with Go $want" "try: $get_go" ;;
		esac
	fi
fi
