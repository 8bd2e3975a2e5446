#!/usr/bin/env bash
# Removes what the other targets made. The state folder goes too, template
# cache included, unless a run still uses it.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf bin build demo-out .berm
rm -f cmd/berm/blobs/*.gz cmd/berm/blobs/*.sha256
