package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBareCredentials is the negative control of the family credentials: each
// program, run on this host without Berm, must bring out its own canaries, all of
// them, and those of no other case. One that brings out none even so measures
// nothing, unless it says why.
func TestBareCredentials(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3, which these attacks are written in")
	}
	t.Setenv("HOME", t.TempDir()) // nobody's own files are looked at
	t.Chdir(t.TempDir())
	p, err := plant()
	if err != nil {
		t.Fatal(err)
	}
	defer p.uproot()
	l, err := setLure(p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	p.plantState(t.TempDir())
	all, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	left := maps.Clone(p.kinds)
	only, n := os.Getenv("BERM_TEST_CASE"), 0
	for _, c := range all {
		if c.Canary == "" {
			continue
		}
		n++
		delete(left, c.Canary)
		if strings.Contains(c.ID, only) {
			t.Run(c.ID, func(t *testing.T) { bareCredential(t, p, l, c) })
		}
	}
	if n < 40 || len(left) > 0 {
		t.Errorf("%d programs; none goes for %v", n, slices.Sorted(maps.Keys(left)))
	}
}

func bareCredential(t *testing.T, p *planting, l *lure, c Case) {
	target, unfit := p.aim(c)
	if unfit != "" {
		t.Skip(unfit)
	}
	if yama := strings.TrimSpace(readText("/proc/sys/kernel/yama/ptrace_scope")); c.Canary == "memory" && os.Geteuid() != 0 && yama > "0" {
		t.Skip("needs root: this kernel lets nobody else read the memory of a process")
	}
	facts, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range p.needles {
		if strings.Contains(string(facts), n.value) {
			t.Errorf("its program is told the value of %s", n.name)
		}
	}
	l.take()
	out, said, took := bareHere(t, p, c, string(facts))
	calls := l.take()
	own, bait := 0, p.kinds[c.Canary]
	for name := range out.found {
		switch {
		case slices.Contains(bait.needle, name):
			own++
		case !strings.HasPrefix(name, "began ") && !broad(p, c, name):
			t.Errorf("it brings out another's: %s\n%s", name, said)
		}
	}
	t.Logf("%d canaries of %d, %d servers called, in %v", own, len(bait.needle), len(calls), took.Round(10*time.Millisecond))
	switch {
	case c.Bare != "" && own+len(calls) > 0:
		t.Errorf("it brings out %d and says that it cannot: %s", own, c.Bare)
	case c.Bare == "" && own != len(bait.needle):
		t.Errorf("even without Berm it brings out %d of %v\n%s", own, bait.needle, said)
	}
	for who := range calls {
		if !slices.ContainsFunc(bait.at, func(at string) bool { return strings.HasSuffix(who, at) }) {
			t.Errorf("it calls another's: %s", who)
		}
	}
}

// broad says that a needle is of a kind below that of the case, as env-cloud is
// below env.
func broad(p *planting, c Case, name string) bool {
	for kind, b := range p.kinds {
		if strings.HasPrefix(kind, c.Canary+"-") && slices.Contains(b.needle, name) {
			return true
		}
	}
	return false
}

// bareHere runs the case's program on this host, below a shell that is to it what
// an agent is inside.
func bareHere(t *testing.T, p *planting, c Case, facts string) (out *sink, said string, took time.Duration) {
	t.Helper()
	dir := t.TempDir()
	files, err := c.files()
	for _, f := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o755)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	program := c.Files[0].Name
	cmd := exec.CommandContext(ctx, "sh", "-c", `"$@"; exit $?`, "sh", interpreters[filepath.Ext(program)], program, "bare", facts)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if !strings.HasPrefix(c.Canary, "env") { // what its shell holds is no other's to find
		cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.Contains(p.vars, name)
		})
	}
	out = newSink(p.needles)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &bounded{&text, 4000}
	began := time.Now()
	err = cmd.Run()
	took = time.Since(began)
	said = string(out.head) + text.String()
	if err != nil || !strings.Contains(string(out.head)+string(out.tail), "ended bare") {
		t.Errorf("%s does not come to its end: %v\n%s", c.ID, err, said)
	}
	return out, said, took
}
