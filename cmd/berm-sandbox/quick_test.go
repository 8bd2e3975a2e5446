package main

import (
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// The once that registers trace points is the one that is spent, so what
// gVisor does at a start finds nothing to do.
func TestTracePointsAreSkipped(t *testing.T) {
	skipTracePoints()
	seccheck.Initialize()
	if n := len(seccheck.Points); n != 0 {
		t.Errorf("%d trace points were registered all the same", n)
	}
}

// TestOpensAreStrict: both tables open directories by the strict way, and know it.
func TestOpensAreStrict(t *testing.T) {
	before := syscalls.AMD64.Lookup(257)
	keepNoFollow()
	if after := syscalls.AMD64.Lookup(257); reflect.ValueOf(before).Pointer() == reflect.ValueOf(after).Pointer() {
		t.Error("openat is gVisor's own")
	}
}
