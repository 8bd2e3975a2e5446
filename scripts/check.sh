#!/usr/bin/env bash
# What people and CI run before a change goes in.
. "$(dirname "$0")/lib.sh"
need git git
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

step() { say "" "== $*"; }

step "go vet"
go vet -trimpath ./...

step "gofmt"
unformatted=$(git ls-files -- '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || die "not formatted:" "$unformatted" "try: gofmt -w $(echo "$unformatted" | tr '\n' ' ')"

step "staticcheck"
go run "$staticcheck" ./...

if [ "${BERM_CHECK_UNITS:-yes}" = yes ]; then # CI runs them in make test, which comes next
	step "go test -race, packages without gVisor"
	# shellcheck source=packages.sh
	. scripts/packages.sh
	race=()
	if command -v "$(go env CC)" >/dev/null; then race=(-race); else say "no C compiler, so no race detector (try: apt-get install gcc libc6-dev)"; fi
	CGO_ENABLED=$([ ${#race[@]} = 0 ] && echo 0 || echo 1) go test -trimpath "${race[@]}" $light
fi

step "house rules" # -count=1: the test cache does not see what go list prints
go test -trimpath -count=1 .

step "go mod tidy, clean diff"
go mod tidy -diff
if [ "${CI:-}" = true ]; then
	git diff --exit-code
	[ -z "$(git status --porcelain)" ] || { git status --short >&2; die "files that git neither tracks nor ignores"; }
fi
say "all is well"
