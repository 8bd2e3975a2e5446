# shellcheck shell=bash disable=SC2034
# Sourced: sorts the packages. $light do not link gVisor and touch no sandbox,
# so they run under the race detector; $heavy are the others.

real='^github.com/bermhq/berm(/cmd/berm|/cmd/berm-weak|/attack|/bench|/scripts/hostview|/internal/backend/gvisor|/internal/jail|/internal/keeper|)$' # through the real binary, or the root
gvisor=$(go list -f '{{$p := .ImportPath}}{{range .Deps}}{{if eq . "gvisor.dev/gvisor/pkg/log"}}{{$p}}{{end}}{{end}}' ./...)
light=$(go list ./... | grep -vE "$real" | grep -vxF "${gvisor:-none}" | tr '\n' ' ')
heavy=$(go list ./... | grep -E "$real|$(echo "${gvisor:-none}" | sed 's/[.]/\\./g; s/.*/^&$/' | paste -sd '|')" | tr '\n' ' ')
