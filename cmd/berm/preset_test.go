package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/preset"
)

// registry is what the preset of a client of this host stands for. The test is
// skipped where there is no such client, or its registry does not answer.
func registry(t *testing.T, name string) policy.Preset {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := preset.Find(ctx, name)
	if err != nil {
		t.Skipf("needs %s of this host and its registry: %v", name, err)
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", p.Hosts[0]) // another may be reached through it
	if err != nil {
		t.Skipf("needs the registry of %s: %v", name, err)
	}
	c.Close()
	return p
}

// The four package managers install something that is not there before, in the
// host template, through what this host's own are configured for; and reach
// nothing else.
func TestPackageManagers(t *testing.T) {
	bin, state := binary(t)
	for _, tt := range []struct{ name, program, want string }{
		{"pip", `pip install -q --target lib six && python3 -c 'import sys; sys.path.insert(0, "lib"); import six; print(six.__file__)'`, "/workspace/lib/six.py\n"},
		{"npm", `npm install --silent is-number >/dev/null && node -e 'console.log(require("is-number")(5))'`, "true\n"},
		{"go", `printf 'module m\n\ngo 1.21\n\nrequire golang.org/x/time v0.5.0\n' >go.mod && go mod download && ls "$(go env GOMODCACHE)/golang.org/x"`, "time@v0.5.0\n"},
		{"cargo", `mkdir src && touch src/lib.rs && printf '[package]\nname = "m"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nitoa = "=1.0.11"\n' >Cargo.toml &&
			cargo fetch -q && ls "$HOME"/.cargo/registry/src/*`, "itoa-1.0.11\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := registry(t, tt.name)
			cmd := exec.Command(bin, "run", "--no-daemon", "--json", "--timeout", "2m", "--memory", "1g", "--allow", "preset:"+tt.name, "--", "sh", "-c", tt.program)
			cmd.Env = append(os.Environ(), "BERM_STATE="+state)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, _ := cmd.Output()
			var r api.RunReport
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatalf("%v: %s %s", err, out, &errs)
			}
			if r.ExitCode == 127 {
				t.Skipf("the host template has no %s", tt.name)
			}
			if r.ExitCode != 0 || r.Stdout != tt.want {
				t.Fatalf("%d, %q, %s; denied %v", r.ExitCode, r.Stdout, r.Stderr, r.Denied)
			}
			if len(r.Hosts) == 0 || r.Usage.IngressBytes == 0 {
				t.Errorf("reached %q, %d bytes came", r.Hosts, r.Usage.IngressBytes)
			}
			for _, h := range r.Hosts {
				if !strings.Contains(strings.Join(slices.Concat(p.Hosts, p.Found), " ")+" ", h+" ") {
					t.Errorf("reached %s, which is not of the preset: %q", h, p.Hosts)
				}
			}
		})
	}
}

// A bad rule, an unknown preset and a client that is not there are refused
// before anything is executed.
func TestEgressRefused(t *testing.T) {
	bin, state := binary(t)
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--allow", "a b"}, "berm: "},
		{[]string{"--allow", "host.test:99999"}, "berm: "},
		{[]string{"--allow", "preset:nothing"}, "berm: preset:nothing: is not known; there are: pip, npm, go, cargo, apt\n"},
		{[]string{"--allow", "preset:npm"}, "berm: preset:npm: npm is not installed on this host\n"},
		{[]string{"--presets", "/nowhere", "--allow", "preset:npm"}, "berm: presets: open /nowhere"},
	} {
		cmd := exec.Command(bin, append(append([]string{"run", "--no-daemon"}, tt.args...), "--", "echo", "it ran")...)
		cmd.Env = []string{"BERM_STATE=" + state, "PATH=/nowhere"}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.Run()
		if cmd.ProcessState.ExitCode() != 125 || out.Len() > 0 || !strings.HasPrefix(errs.String(), tt.says) || !strings.Contains(errs.String(), "\ntry: ") {
			t.Errorf("%q: %d, %q, %q", tt.args, cmd.ProcessState.ExitCode(), &out, &errs)
		}
	}
}

// A daemon that has given up its rights still knows how the clients of whoever
// started it are set up, and tells those inside, without passwords.
func TestServePresets(t *testing.T) {
	var asked atomic.Int32
	reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"dist": {"tarball": "https://files.test:8443/npm.tgz"}}`)
	}))
	defer reg.Close()
	own := strings.TrimPrefix(reg.URL, "http://")
	dir := t.TempDir()
	npm := "#!/bin/sh\necho x >>" + filepath.Join(dir, "calls") + "\nprintf '%s' '{\"registry\": \"http://me:hunter2@" + own + "/\"}'\n"
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(npm), 0o700); err != nil { // root's alone
		t.Fatal(err)
	}
	file := filepath.Join(dir, "presets.yaml")
	os.WriteFile(file, []byte("presets:\n  house: {hosts: house.test:443, env: {HOUSE: red}}\n"), 0o600)
	config := filepath.Join(dir, "berm.yaml")
	os.WriteFile(config, []byte("presets: "+file+"\n"), 0o600)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	s := serve(t, "--config", config)

	var sb api.Sandbox
	req := map[string]any{"egress": []any{map[string]any{"allow": "preset:npm"}, map[string]any{"allow": "preset:house"}}, "ttl_seconds": 120}
	s.must(201, "POST", "/v1/sandboxes", req, &sb)
	a := s.exec(sb.SandboxID, "cat ~/.npmrc; echo $HOUSE; stat -c %U ~/.npmrc")
	if want := "registry=http://" + own + "/\nupdate-notifier=false\nfund=false\nred\nagent\n"; a.Stdout != want {
		t.Errorf("inside: %q %q, want %q", a.Stdout, a.Stderr, want)
	}
	s.must(201, "POST", "/v1/sandboxes", req, nil)
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	if string(calls) != "x\n" || asked.Load() != 1 {
		t.Errorf("npm was called %d times and its registry %d times, for two sandboxes", len(calls)/2, asked.Load())
	}
	code, b, _ := s.do("POST", "/v1/sandboxes", map[string]any{"egress": []any{map[string]any{"allow": "preset:nothing"}}})
	if code != 400 && code != 422 || !strings.Contains(string(b), "is not known; there are") {
		t.Errorf("an unknown preset: %d %s", code, b)
	}
	_, events, _ := s.do("GET", "/v1/events", nil)
	if all := string(events) + s.log.String(); strings.Contains(all, "hunter2") {
		t.Errorf("the password was written down: %s", all)
	}
	s.kill9() // clean sees to it that the process that asks is gone, too
	s.start()
}
