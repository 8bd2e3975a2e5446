package daemon

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/store"
)

// TestSettle: a revoked token stays revoked though its record says otherwise.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	say := slog.New(slog.DiscardHandler)
	open := func() (*store.Store, *auth.Tokens) {
		t.Helper()
		s, err := store.Open(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a, err := auth.Open(s.Bucket("tokens"), s.Append)
		if err == nil {
			err = settle(s, a, say)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s, a
	}
	s, a := open()
	n, err := a.Create(t.Context(), auth.Local, api.TokenRequest{Role: api.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	var record json.RawMessage
	if ok, err := s.Bucket("tokens").Get(n.Info.TokenID, &record); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := a.Revoke(t.Context(), auth.Local, n.Info.TokenID); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket("tokens").Put(n.Info.TokenID, record); err != nil { // as if a crash had come between
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, a = open()
		if _, err := a.Check(n.Token); err == nil {
			t.Error("a token that the log says is revoked works")
		}
		var kept json.RawMessage
		if ok, err := s.Bucket("tokens").Get(n.Info.TokenID, &kept); err != nil || !ok || !bytes.Contains(kept, []byte(`"revoked":true`)) {
			t.Error(string(kept), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
