#!/usr/bin/env bash
# Runs the benchmarks whose figures stand in docs/specification.md.
. "$(dirname "$0")/lib.sh"
scripts/build.sh
export BERM_STATE=${BERM_STATE:-$repo/.berm}
bin/berm bench run "$@"
bin/berm bench egress
scripts/daemon.sh bin/berm bench exec "$@"
scripts/daemon.sh bin/berm bench files -n 3
