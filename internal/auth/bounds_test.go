package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// What one tenant's tokens take is bounded, dead ones too, and no tenant's
// quota is another's.
func TestTenantBounds(t *testing.T) {
	b := &memBucket{rec: map[string]json.RawMessage{}}
	f := open(t, b)
	ctx := context.Background()
	_, acme := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin, Tenant: "acme"})
	for i := range 500 {
		f.now = f.now.Add(time.Second)
		made, _ := f.make(t, acme, api.TokenRequest{Role: api.RoleAgent, Label: fmt.Sprint(i), TTLSeconds: float64(1 + i%2)})
		if i%3 == 0 {
			if err := f.Revoke(ctx, acme, made.Info.TokenID); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.now = f.now.Add(time.Minute)
	newest, _ := f.make(t, acme, api.TokenRequest{Role: api.RoleAgent})
	if n := len(b.rec); n != maxDead+2 || len(f.byHash) != n || len(f.byID) != n {
		t.Errorf("%d records, %d and %d known", n, len(f.byHash), len(f.byID))
	}
	labels := map[string]bool{}
	for _, k := range f.List(acme) {
		labels[k.Label] = true
	}
	if !labels["499"] || labels["0"] {
		t.Error("it is not the oldest that went")
	}
	if _, err := f.Check(newest.Token); err != nil {
		t.Error(err)
	}

	var err error
	n := 2
	for ; err == nil; n++ {
		f.now = f.now.Add(time.Second)
		_, err = f.Create(ctx, acme, api.TokenRequest{Role: api.RoleAgent})
	}
	if code(err) != api.CodeQuota || n != maxTokens+1 {
		t.Errorf("%d tokens: %v", n-1, err)
	}
	f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
}

// Tokens are not made faster than somebody could mean it.
func TestMakingRate(t *testing.T) {
	f := open(t, &memBucket{rec: map[string]json.RawMessage{}})
	_, acme := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin, Tenant: "acme"})
	for range makeBurst {
		f.make(t, acme, api.TokenRequest{Role: api.RoleAgent})
	}
	if _, err := f.Create(context.Background(), acme, api.TokenRequest{Role: api.RoleAgent}); code(err) != api.CodeRate {
		t.Error(err)
	}
	f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
	f.now = f.now.Add(time.Second)
	f.make(t, acme, api.TokenRequest{Role: api.RoleAgent})
}

func TestRequestBounds(t *testing.T) {
	f := open(t, &memBucket{rec: map[string]json.RawMessage{}})
	many := make([]string, maxTemplates+1)
	for i := range many {
		many[i] = fmt.Sprintf("t%d", i)
	}
	for name, r := range map[string]api.TokenRequest{
		"ttl":     {TTLSeconds: 0.5},
		"many":    {Ceiling: &api.Policy{Templates: many}},
		"long":    {Ceiling: &api.Policy{Templates: []string{strings.Repeat("x", 129)}}},
		"empty":   {Ceiling: &api.Policy{Templates: []string{""}}},
		"control": {Default: &api.Policy{Templates: []string{"a\x1b"}}},
	} {
		r.Role = api.RoleAgent
		if _, err := f.Create(context.Background(), Local, r); code(err) != api.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.make(t, Local, api.TokenRequest{Role: api.RoleAgent, Ceiling: &api.Policy{Templates: append(many[:maxTemplates-1], "ghcr.io/a/B_c:1.0@sha256")}})
}
