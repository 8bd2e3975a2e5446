package sandbox

import (
	"testing"

	"github.com/bermhq/berm/internal/policy"
)

// A root that is not the host's gets the host's certificates with a preset, in
// the home of whoever runs commands; root's apt has the root's own sources.
func TestTrust(t *testing.T) {
	a := &asked{names: []string{"pip"}, trust: "HOST", preset: map[string]policy.Preset{"pip": {
		Env:   map[string]string{"APT_CONFIG": "/home/agent/.config/apt/apt.conf", "PIP_CERT": "/elsewhere"},
		Files: map[string]string{presetCA: "HOUSE"},
	}}}
	for _, tt := range []struct {
		who       person
		file, apt string
	}{
		{agentPerson, "/home/agent/.config/berm/ca-bundle.pem", "/home/agent/.config/apt/apt.conf"},
		{rootPerson, "/root/.config/berm/ca-bundle.pem", ""},
	} {
		env := a.environment(map[string]string{"GIT_SSL_CAINFO": "own"}, tt.who)
		if env["PIP_CERT"] != tt.file || env["SSL_CERT_FILE"] != tt.file || env["npm_config_cafile"] != tt.file || env["GIT_SSL_CAINFO"] != "own" || env["APT_CONFIG"] != tt.apt {
			t.Errorf("%s: %v", tt.who.name, env)
		}
		if f := a.newLink(false, tt.who).files; f[tt.file] != "HOST\nHOUSE" {
			t.Errorf("%s: %q", tt.who.name, f)
		}
	}
	a.trust = ""
	if env := a.environment(nil, agentPerson); env["SSL_CERT_FILE"] != "" || len(a.newLink(false, agentPerson).files) != 1 {
		t.Errorf("without: %v", env)
	}
	none := &asked{trust: "HOST"}
	if f := none.newLink(false, agentPerson).files; len(f) != 0 {
		t.Errorf("without a preset: %v", f)
	}
}
