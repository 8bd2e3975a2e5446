package auth

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// What hangs on a token ends with it, and says why.
func TestAlive(t *testing.T) {
	f := open(t, &memBucket{rec: map[string]json.RawMessage{}})
	over := func(ctx context.Context) {
		t.Helper()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("it goes on")
		}
		if code(context.Cause(ctx)) != api.CodeTokenInvalid {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	}
	made, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
	other, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
	ctx, cancel := f.Alive(t.Context(), made.Info.TokenID)
	defer cancel()
	still, cancel := f.Alive(t.Context(), other.Info.TokenID)
	defer cancel()
	if err := f.Revoke(t.Context(), Local, made.Info.TokenID); err != nil {
		t.Fatal(err)
	}
	over(ctx)
	if still.Err() != nil {
		t.Error("another token ended as well")
	}
	for _, id := range []string{made.Info.TokenID, "unknown"} {
		ctx, cancel := f.Alive(t.Context(), id)
		defer cancel()
		over(ctx)
	}
	short, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent, TTLSeconds: 1})
	ctx, cancel = f.Alive(t.Context(), short.Info.TokenID)
	defer cancel()
	over(ctx)
}
