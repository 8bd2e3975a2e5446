#!/usr/bin/env bash
# Removes what the other targets made, the state folder with its templates too.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf bin build demo-out .berm
rm -f cmd/berm/blobs/*.gz cmd/berm/blobs/*.sha256
