package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

func presetsIn(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "presets.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReadPresets(t *testing.T) {
	for _, tt := range []struct {
		name, text, fails string
		want              map[string]policy.Preset
	}{
		{"empty", "", "", map[string]policy.Preset{}},
		{"all", "presets:\n  pip:\n    hosts: [a.test:443, '10.0.0.1:80']\n    files: {/home/agent/.x: y}\n    env: {A: '1'}\n  mine: {hosts: b.test:1}\n", "", map[string]policy.Preset{
			"pip":  {Hosts: []string{"a.test:443", "10.0.0.1:80"}, Files: map[string]string{"/home/agent/.x": "y"}, Env: map[string]string{"A": "1"}},
			"mine": {Hosts: []string{"b.test:1"}},
		}},
		{"JSON", `{"presets": {"go": {"hosts": ["g.test:443"]}}}`, "", map[string]policy.Preset{"go": {Hosts: []string{"g.test:443"}}}},
		{"another key", "preset: {}\n", "line 1: preset is not a key", nil},
		{"another key below", "presets:\n  pip: {host: a.test:443}\n", "line 2: host is not a key", nil},
		{"no hosts", "presets:\n  pip: {}\n", "pip: has no hosts", nil},
		{"a path", "presets:\n  pip: {hosts: a.test:1, files: {../x: y}}\n", `pip: file "../x": is not a clean absolute path`, nil},
		{"a variable", "presets:\n  pip: {hosts: a.test:1, env: {A=B: y}}\n", `pip: env "A=B": cannot be`, nil},
		{"large", "presets:\n  pip: {hosts: a.test:1, env: {A: " + strings.Repeat("x", maxPreset) + "}}\n", "bytes, and may have", nil},
		{"long", "#" + strings.Repeat("x", maxConfig), "longer than", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadPresets(presetsIn(t, tt.text))
			var ae *api.Error
			if tt.fails != "" && (!errors.As(err, &ae) || !strings.Contains(ae.Message, tt.fails)) || tt.fails == "" && (err != nil || !reflect.DeepEqual(got, tt.want)) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if _, err := ReadPresets("/nowhere"); err == nil {
		t.Error("no error")
	}
}

// What a file says is not asked of clients; what it does not say is.
func TestFindPresets(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	file := presetsIn(t, "presets:\n  pip: {hosts: a.test:443}\n  other: {hosts: b.test:443}\n")
	got, err := findPresets(t.Context(), []string{"pip"}, file)
	if err != nil || len(got) != 1 || got["pip"].Hosts[0] != "a.test:443" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := findPresets(t.Context(), []string{"pip", "npm"}, file); err == nil || !strings.Contains(err.Error(), "npm is not installed") {
		t.Errorf("%v", err)
	}
	if _, err := findPresets(t.Context(), []string{"gem"}, ""); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("%v", err)
	}
	if _, err := knownPresets(got)("pip"); err != nil {
		t.Error(err)
	}
	if _, err := knownPresets(got)("npm"); err == nil {
		t.Error("no error")
	}
}
