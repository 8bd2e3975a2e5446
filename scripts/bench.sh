#!/usr/bin/env bash
# Runs the benchmark whose figures stand in docs/specification.md.
. "$(dirname "$0")/lib.sh"
scripts/build.sh
export BERM_STATE=${BERM_STATE:-$repo/.berm}
exec bin/berm bench run "$@"
