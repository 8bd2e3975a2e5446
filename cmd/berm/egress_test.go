package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack/world"
)

// inWorld runs the calling test again in a process that has a world around it,
// and returns that world there and nil here. The network of this host must be
// afterwards what it was before.
func inWorld(t *testing.T) *world.World {
	t.Helper()
	binary(t)
	if os.Getenv("BERM_TEST_WORLD") == t.Name() {
		w, err := world.Build()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return w
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl, which the template then has too")
	}
	before := hostNetwork()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=9m")
	cmd.Env = append(os.Environ(), "BERM_TEST_WORLD="+t.Name())
	cmd.SysProcAttr = world.Attr()
	out, err := cmd.CombinedOutput()
	if testing.Verbose() || err != nil {
		t.Logf("in its world:\n%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatal(err)
	}
	after := hostNetwork()
	for what, was := range before {
		if is := after[what]; is != was {
			t.Errorf("%s of this host was\n%s\nand is\n%s", what, was, is)
		}
	}
	return nil
}

// hostNetwork is what Berm must not change: addresses, routes, rules, filters,
// and the settings of the network. What a kernel counts is left out.
func hostNetwork() map[string]string {
	out := map[string]string{}
	for _, args := range [][]string{{"ip", "-o", "link"}, {"ip", "-o", "addr"}, {"ip", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"},
		{"ip", "rule"}, {"ip", "-6", "rule"}, {"nft", "list", "ruleset"}, {"iptables-save"}} {
		if _, err := exec.LookPath(args[0]); err != nil {
			continue
		}
		b, _ := exec.Command(args[0], args[1:]...).Output()
		var lines []string
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			for i := range f {
				if slices.Contains([]string{"valid_lft", "preferred_lft", "expires"}, f[i]) && i+1 < len(f) {
					f[i+1] = "-"
				}
			}
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, strings.Join(f, " "))
			}
		}
		out[strings.Join(args, " ")] = strings.Join(lines, "\n")
	}
	_ = filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "count") || strings.Contains(path, "random") {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil {
			out[path] = string(b)
		}
		return nil
	})
	return out
}

// TestEgressRun: what is allowed works over IPv4 and IPv6, what is denied is
// told to the program, to people and in JSON, and what --learn prints works.
func TestEgressRun(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	allow := []string{"--allow", "example.test:8080", "--"}
	curl := func(args ...string) []string {
		return append(slices.Clone(allow), append([]string{"curl", "-sS", "-m", "20"}, args...)...)
	}

	w.Begin(nil)
	for _, v := range []string{"4", "6"} {
		r, code := run(t, curl("-f", "-"+v, "http://example.test:8080/v"+v)...)
		if code != 0 || r.Stdout != "canary example.test\n" || !slices.Contains(r.Hosts, "example.test:8080") || len(r.Denied) > 0 ||
			r.Usage.EgressBytes == 0 || r.Usage.IngressBytes == 0 {
			t.Errorf("over IPv%s: %d %+v", v, code, r)
		}
	}
	if seen := w.End(); len(seen.Hits) > 0 || !seen.Good["http4 /v4"] || !seen.Good["http6 /v6"] {
		t.Errorf("the servers saw %+v", seen)
	}

	denied := func(r api.RunReport, target string) bool {
		return slices.ContainsFunc(r.Denied, func(d api.Denial) bool {
			return strings.Contains(d.Target, target) && d.Reason != "" && d.Kind != ""
		})
	}
	w.Begin(nil)
	r, _ := run(t, curl("-w", "%{http_code}", "-H", "Host: evil.test", "http://example.test:8080/denied")...)
	if !strings.HasSuffix(r.Stdout, "403") || !strings.Contains(r.Stdout, "to allow it: ") || !strings.Contains(r.Stdout, "evil.test:8080") || len(r.Denied) == 0 {
		t.Errorf("another host: %q, denied %+v", r.Stdout, r.Denied)
	}
	for _, tt := range []struct{ url, target string }{
		{"http://evil.test/", "evil.test"},
		{"http://203.0.113.66:8080/", "203.0.113.66:8080"},
		{"http://[2001:db8:66::66]:8080/", "2001:db8:66::66"},
		{"http://169.254.169.254/latest/", "169.254.169.254:80"},
		{"http://198.51.100.1:7070/", "198.51.100.1:7070"},
	} {
		r, code := run(t, curl("-f", tt.url)...)
		if code == 0 || code == 28 || !denied(r, tt.target) {
			t.Errorf("%s: exit code %d (28 is a timeout), denied %+v", tt.url, code, r.Denied)
		}
	}
	bin, _ := binary(t)
	text, err := exec.Command(bin, append([]string{"run"}, curl("-f", "http://evil.test:8080/")...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "denied: evil.test") || !strings.Contains(string(text), "--allow evil.test") {
		t.Errorf("what people are told: %v %s", err, text)
	}
	if r, code := run(t, "--", "curl", "-sS", "-m", "20", "http://example.test:8080/"); code == 0 || len(r.Denied) > 0 {
		t.Errorf("without a policy: %d %+v", code, r.Denied)
	}
	if seen := w.End(); len(seen.Hits) > 0 {
		t.Errorf("the servers saw %+v", seen.Hits)
	}

	w.Begin(nil)
	learned, _ := run(t, "--learn", "--", "sh", "-c", "curl -sS -m 20 http://example.test:8080/; curl -skS -m 20 https://example.test:8443/; true")
	if seen := w.End(); len(seen.Hits)+len(seen.Good) > 0 {
		t.Errorf("--learn let something out: %+v", seen)
	}
	want := []string{"example.test:8080", "example.test:8443"}
	if got := slices.Sorted(slices.Values(learned.Wanted)); !slices.Equal(got, want) {
		t.Fatalf("--learn wants %v, not %v", got, want)
	}
	type rule struct {
		Allow string `json:"allow"`
	}
	var doc struct {
		Egress []rule `json:"egress"`
	}
	for _, a := range learned.Wanted {
		doc.Egress = append(doc.Egress, rule{a})
	}
	b, _ := json.Marshal(doc)
	policy := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(policy, b, 0o644); err != nil {
		t.Fatal(err)
	}
	w.Begin(nil)
	if r, code := run(t, "--policy", policy, "--", "sh", "-c", "curl -fsS -m 20 http://example.test:8080/l && curl -fskS -m 20 https://example.test:8443/"); code != 0 {
		t.Errorf("what was learned does not work: %d %+v", code, r)
	}
	if seen := w.End(); len(seen.Hits) > 0 || !seen.Good["http4 /l"] && !seen.Good["http6 /l"] {
		t.Errorf("the servers saw %+v", seen)
	}
}

// below lists processes of a name whose ancestor this process is.
func below(comm string) (out []int) {
	parents, names := map[int]int{}, map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var pid, parent int
		st, _ := os.ReadFile(d + "/stat")
		open, end := bytes.IndexByte(st, '('), bytes.LastIndexByte(st, ')')
		if open < 0 || end < open {
			continue
		}
		var state string
		fmt.Sscan(filepath.Base(d), &pid)
		fmt.Sscan(string(st[end+1:]), &state, &parent)
		if state != "Z" {
			parents[pid], names[pid] = parent, string(st[open+1:end])
		}
	}
	for pid, name := range names {
		for up := parents[pid]; name == comm && up > 1; up = parents[up] {
			if up == os.Getpid() {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
