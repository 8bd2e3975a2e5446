#!/usr/bin/env bash
# Runs everyday programs natively and in a sandbox and writes docs/compatibility.md.
# Arguments go to the comparer: -only NAME,...
. "$(dirname "$0")/lib.sh"

[[ $(id -u) = 0 ]] || { echo "compat: the native side needs root: sudo env PATH=\"\$PATH\" make compat" >&2; exit 2; }
scripts/build.sh
export BERM_STATE=${BERM_STATE:-$PWD/.berm}
if ! bin/berm template info compat >/dev/null 2>&1; then
	bin/berm template build compat --deb "$(grep -v '^#' scripts/compat/debs | xargs | tr ' ' ',')"
fi
exec go run ./scripts/compat -berm bin/berm -state "$BERM_STATE" -o docs/compatibility.md "$@"
