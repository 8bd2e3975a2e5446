#!/usr/bin/env bash
# Attacks Berm and the sandboxes of others that are to be had here, and writes
# docs/containment.md. Arguments go to scorepage: -only NAME,... attacks some of
# them again, -only none writes the page anew.
. "$(dirname "$0")/lib.sh"

[[ $(id -u) = 0 ]] || { echo "containment: the suite sees the whole host: sudo env PATH=\"\$PATH\" make containment" >&2; exit 2; }
scripts/build.sh
ln -sfn sandbox build/runsc # under this name it is gVisor's own command line
go build -trimpath -o build/scorepage ./scripts/scorepage
export BERM_STATE=${BERM_STATE:-$PWD/.berm}
need bwrap bubblewrap
need socat socat
need rg ripgrep
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # what is in a home is closed to some
if ! command -v srt >/dev/null && command -v npm >/dev/null; then
	npm install -g --silent @anthropic-ai/sandbox-runtime@0.0.83 >/dev/null || say "srt could not be installed and is left out"
fi

# docker_here makes sure that a daemon answers which knows gVisor: the one of this
# host, or one of our own, in namespaces of its own, that goes when we go.
docker_here() {
	docker info --format '{{.Runtimes}}' 2>/dev/null | grep -q runsc && return
	need dockerd docker.io
	work=$(mktemp -d /tmp/berm-docker-XXXXXX)
	cat >"$work/start" <<-EOF
		mount --make-rprivate / && ip link set lo up
		exec dockerd --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/pid" -H "unix://$work/sock" \\
			--bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \\
			--exec-opt native.cgroupdriver=cgroupfs --add-runtime runsc="$repo/build/runsc"
	EOF
	unshare --mount --net sh "$work/start" >"$work/log" 2>&1 &
	daemon=$!
	trap 'kill $daemon; wait $daemon; rm -rf "$work"' EXIT
	export DOCKER_HOST=unix://$work/sock
	for _ in $(seq 60); do
		docker version >/dev/null 2>&1 && break
		sleep 0.5
	done
	docker version >/dev/null || { say "no Docker daemon starts here: $(tail -n 1 "$work/log")"; return 1; }
}

# image is Debian with what the programs are written in.
image() {
	docker image inspect berm-attack >/dev/null 2>&1 && return
	need mmdebstrap mmdebstrap
	mmdebstrap --quiet --variant=minbase --include=python3,curl bookworm - 2>/dev/null | docker import - berm-attack >/dev/null
}

if [[ " $* " != *" none "* ]]; then
	{ docker_here && image; } || say "Docker is left out"
fi
build/scorepage "$@"
