#!/usr/bin/env bash
# Builds bin/berm: first the two programs that it carries (the guest's agent and
# gVisor's own program), packed into cmd/berm/blobs, then berm around them.
# Nothing is done twice: go build decides what is stale, and a blob is only
# packed again when its program changed.
. "$(dirname "$0")/lib.sh"

[ "$(uname -sm)" = "Linux x86_64" ] || die "Berm runs on Linux x86-64 only; this is $(uname -sm)"
need gzip gzip

# Reading the version from git fails in a tree that belongs to somebody else.
vcs=auto
git status --porcelain >/dev/null 2>&1 || vcs=false

mkdir -p build bin cmd/berm/blobs
go mod download || die "could not fetch the modules that Berm is built from" "try: go env GOPROXY   (and see that it can be reached)"
pin=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor)

# compile OUT WHAT VCS PACKAGE builds one program, counting packages as it goes.
compile() {
	local out=$1 what=$2 stamp=$3 pkg=$4 all n=0 line began=$SECONDS shown=0
	all=$(go list -deps "$pkg" | wc -l)
	go build -v -trimpath -buildvcs="$stamp" \
		-ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$pin+berm.1" \
		-o "$out" "$pkg" 2>&1 | while IFS= read -r line; do
		case $line in
		*[!A-Za-z0-9._/~-]* | '') # not a package's name: a message
			printf '%s\n' "$line" >&2
			continue
			;;
		esac
		n=$((n + 1))
		if [ -t 2 ]; then
			printf '\r%-28s %4d of %d packages, %d s ' "$what" "$n" "$all" $((SECONDS - began)) >&2
		elif [ $((SECONDS - shown)) -ge 20 ]; then
			shown=$SECONDS
			printf '%-28s %4d of %d packages, %d s\n' "$what" "$n" "$all" $((SECONDS - began)) >&2
		fi
	done
	if [ -t 2 ] && [ $((SECONDS - began)) -gt 0 ]; then
		printf '\r%-28s built in %d s%20s\n' "$what" $((SECONDS - began)) '' >&2
	fi
}

# pack NAME compresses build/NAME into the blob that berm embeds.
pack() {
	local sum
	sum=$(sha256sum <"build/$1" | cut -d ' ' -f 1)
	if [ -f "cmd/berm/blobs/$1.gz" ] && [ "$(cat "cmd/berm/blobs/$1.sha256" 2>/dev/null)" = "$sum" ]; then
		return
	fi
	gzip -n -6 <"build/$1" >"cmd/berm/blobs/$1.gz.new"
	mv "cmd/berm/blobs/$1.gz.new" "cmd/berm/blobs/$1.gz"
	printf '%s\n' "$sum" >"cmd/berm/blobs/$1.sha256"
}

compile build/agent "guest agent" false ./cmd/berm-agent
compile build/standin "stand-ins of berm attack" false ./cmd/berm-standin
compile build/sandbox "gVisor (first time: minutes)" false ./cmd/berm-sandbox
pack agent
pack standin
pack sandbox
compile bin/berm "berm" "$vcs" ./cmd/berm
say "bin/berm is ready ($(du -h bin/berm | cut -f 1))"
