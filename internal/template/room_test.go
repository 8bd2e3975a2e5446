package template

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// A disk that gets full ends what is being made; one that is full begins nothing.
func TestRoom(t *testing.T) {
	var left atomic.Int64
	left.Store(1)
	free := func(string) int64 { return left.Load() }
	ctx, done := watchRoom(t.Context(), ".", free)
	defer done()
	if ctx.Err() != nil {
		t.Fatal("ended with room left")
	}
	left.Store(0)
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("goes on without room")
	}
	if !errors.Is(context.Cause(ctx), errNoRoom) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	if ctx, done := watchRoom(t.Context(), ".", free); !errors.Is(context.Cause(ctx), errNoRoom) {
		t.Errorf("begins without room: %v", context.Cause(ctx))
		done()
	}
	if n := spare("/does/not/exist"); n != 0 {
		t.Errorf("a disk that cannot be asked has %d bytes", n)
	}
	if spare(t.TempDir()) == 0 {
		t.Skip("the disk of this host is full")
	}
}
