package store

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// TestTenantBudget: what one tenant's clients write is bounded as well, tags
// changed again and again included; what ends something is always taken.
func TestTenantBudget(t *testing.T) {
	b := budget{max: Budget{Events: 1000, Bytes: 1 << 20, TenantBytes: 100 << 10}}
	now := time.Now()
	charge := func(tenant, sandbox, kind string, size int) error {
		return b.charge(&api.Event{Type: kind, Tenant: tenant, SandboxID: sandbox, Actor: "t1"}, size, now)
	}
	for i := range 10 {
		if err := charge("a", "s"+strconv.Itoa(i), api.EventSandboxChanged, 10<<10); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	for _, kind := range []string{api.EventSandboxChanged, api.EventSandboxCreated, api.EventTokenCreated, api.EventFileWritten} {
		if err := charge("a", "s99", kind, 10<<10); !errors.Is(err, ErrBudget) {
			t.Errorf("%s beyond the tenant's bytes: %v", kind, err)
		}
	}
	for _, kind := range []string{api.EventSandboxStarted, api.EventSandboxEnded, api.EventExecEnded, api.EventTokenRevoked} {
		if err := charge("a", "s99", kind, 10<<10); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := charge("b", "s1", api.EventSandboxChanged, 10<<10); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	now = now.Add(time.Minute)
	if err := charge("a", "s1", api.EventSandboxChanged, 10<<10); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}
