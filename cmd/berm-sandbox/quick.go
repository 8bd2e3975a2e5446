package main

import (
	"os"
	"slices"
	"sync"
	_ "unsafe" // go:linkname
)

// ours says that this is a sandbox that Berm's keeper starts, and not gVisor's
// own command line under this program's other name.
func ours() bool { return slices.Contains(os.Args, "--product-name=berm") }

// Registering the names and fields of all points that a trace session could ask
// for takes a start some milliseconds and a garbage collection. Berm configures
// no such session, so the once that does it is spent beforehand.

//go:linkname tracePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var tracePoints sync.Once

func skipTracePoints() { tracePoints.Do(func() {}) }
