package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/alert"
)

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string // want: part of the refusal; "" means accepted
	}{
		{"empty", "", ""},
		{"comments only", "# nothing\n", ""},
		{"all", `
listen: [127.0.0.1:7070, "[::1]:7070"]
hosts: [berm.internal]
memory_budget: 8g
quota_sandboxes: 100
quota_memory: 4g
quota_creates_per_minute: 60
audit_retention: 30d
audit_max_bytes: 1g
log_format: json
log_level: debug
alerts:
  - name: caps
    types: [cap.hit]
    count: 3
    window_seconds: 60
    command: [/usr/bin/logger, -t, berm]
  - name: tokens
    types: [token.created]
    webhook: https://alerts.example/berm
    secret: sixteen-or-more-characters
`, ""},
		{"one address", "listen: 127.0.0.1:0\nhosts: berm.internal\n", ""},
		{"addresses of a wrong kind", "listen: {a: b}\n", "line 1: a table of keys is not a list of texts"},
		{"a bad alert", "alerts:\n  - name: Caps!\n", "alert \"Caps!\""},
		{"unknown key", "memory: 1g\n", "line 1: memory is not a key"},
		{"unknown key below", "alerts:\n  - types: [a]\n    webhook: x\n    url: y\n", "url"},
		{"wrong kind", "quota_sandboxes: many\n", "line 1: `many` is not a whole number"},
		{"no keys", "- x\n", "line 1: a list is not keys with values"},
		{"no list of alerts", "alerts: x\n", "line 1: `x` is not a list of alerts"},
		{"bad size", "memory_budget: lots\n", `"lots" is not a size`},
		{"bad time", "audit_retention: soon\n", "time"},
		{"bad level", "log_level: loud\n", "log_level"},
		{"half of TLS", "tls_cert: x.pem\n", "tls_key"},
		{"negative", "quota_sandboxes: -1\n", "negative"},
		{"too long", "# " + strings.Repeat("x", maxConfig) + "\n", "longer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "berm.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := ReadConfig(path)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if tt.name == "all" && (c.MemoryBudget != 8<<30 || time.Duration(c.AuditRetention) != 30*24*time.Hour || len(c.Alerts) != 2) {
					t.Errorf("read as %+v", c)
				}
				return
			}
			var ae *api.Error
			if !errors.As(err, &ae) || !strings.Contains(ae.Message, tt.want) || !strings.Contains(ae.Hint, "memory_budget") {
				t.Errorf("got %v, want a refusal with %q and the keys", err, tt.want)
			}
		})
	}
	if _, err := ReadConfig(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was read")
	}
}

// TestManual: the config file of the manual is one, and has every key.
func TestManual(t *testing.T) {
	b, err := os.ReadFile("../../docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "```yaml config\n")
	text, _, ok := strings.Cut(text, "```")
	path := filepath.Join(t.TempDir(), "berm.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil || !ok {
		t.Fatal(err, ok)
	}
	c, err := ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alert.New(c.Alerts, nil, nil, nil); err != nil {
		t.Error(err)
	}
	for _, key := range configKeys() {
		if !strings.Contains("\n"+text, "\n"+key+":") {
			t.Errorf("docs/daemon.md does not show the key %s", key)
		}
	}
}
