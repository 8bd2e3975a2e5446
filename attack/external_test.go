package attack

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

func TestParseExternal(t *testing.T) {
	for line, want := range map[string][]string{
		`bwrap --unshare-all {}`:                  {"bwrap", "--unshare-all", "{}"},
		`run -v "{dir}:/a b"  'x "y"' {} z\ z ""`: {"run", "-v", "{dir}:/a b", `x "y"`, "{}", "z z", ""},
		"docker run --rm\n\tpython:3 {}":          {"docker", "run", "--rm", "python:3", "{}"},
		`sh -c 'exec "$@"' sh {}`:                 {"sh", "-c", `exec "$@"`, "sh", "{}"},
		`env {}`:                                  {"env", "{}"},
	} {
		if got, err := ParseExternal(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "bwrap", "{}", "a {} {}", "a '{}", `a x{}`, `a "`} {
		if got, err := ParseExternal(line); err == nil {
			t.Errorf("%q: taken as %q", line, got)
		}
	}
}

func FuzzParseExternal(f *testing.F) {
	f.Add(`a 'b c' "d\"" {}`)
	f.Fuzz(func(t *testing.T, line string) {
		x, err := ParseExternal(line)
		if err == nil && (len(x) < 2 || !slices.Contains(x, "{}")) {
			t.Errorf("%q: %q", line, x)
		}
	})
}

// caged makes a cage, or skips.
func caged(t *testing.T) *cage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups are made")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3, which programs are written in")
	}
	cg, err := newCage(false)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		dirs := cg.dirs
		cg.open()
		for _, d := range dirs {
			if _, err := os.Stat(d); err == nil {
				t.Errorf("%s is still there", d)
			}
		}
	})
	return cg
}

// TestExternal: a program travels whole, its output is searched, and nothing that
// it started outlives the cage.
func TestExternal(t *testing.T) {
	cg := caged(t)
	secret := newCanary()
	c := Case{ID: "x", Family: "escape", Limits: api.Limits{TimeoutSeconds: 5}, Endings: []string{api.EndExit}, Files: []File{
		{"main.py", []byte("from prelude import *\nimport other, subprocess\nprint(other.A, T['home'])\n" +
			"subprocess.Popen(['sleep', '60'], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nended()\n")},
		{"other.py", []byte("A = '" + secret + "'\n")}}}
	var o Observation
	if err := (External{"env", "{}"}).run(t.Context(), cg, &o, c, []needle{{"the secret", secret}}, target{Home: "/x"}); err != nil {
		t.Fatal(err)
	}
	if !o.Began || !o.Ended || len(o.Leaks) != 1 || len(cg.procs()) != 1 {
		t.Errorf("%+v, %d left", o, len(cg.procs()))
	}
	if err := cg.empty(nil); err != nil || len(cg.procs()) != 0 {
		t.Errorf("%v, %d left", err, len(cg.procs()))
	}
	// One that does not end is ended, a little after its cap.
	c.Wall, c.Files[0].Data, c.Limits.TimeoutSeconds = "time", []byte("from prelude import *\ndeaf()\nwhile True: pass\n"), 1
	o = Observation{External: true}
	began := time.Now()
	if err := (External{"env", "{}"}).run(t.Context(), cg, &o, c, nil, target{}); err != nil || time.Since(began) > 15*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if r := Judge(c, o); r.Verdict != Breached || !strings.Contains(r.Evidence, "its cap was") {
		t.Errorf("%+v", r)
	}
}

// TestExternalNeedsAProgram: a command that runs nothing is no contained sandbox.
func TestExternalNeedsAProgram(t *testing.T) {
	cg := caged(t)
	for _, x := range []External{{"false", "{}"}, {"echo", "{}"}, {"/nonexistent/sandbox", "{}"}} {
		if err := x.check(t.Context(), cg); err == nil {
			t.Errorf("%v passes for a sandbox", x)
		}
	}
}

// TestCageGoesWithItsMaker: also when that one is killed.
func TestCageGoesWithItsMaker(t *testing.T) {
	cg := caged(t)
	cmd := exec.Command(cg.inside([]string{"sleep", "60"})[0], cg.inside([]string{"sleep", "60"})[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); len(cg.procs()) == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	cg.release.Close() // as the kernel does for who is killed
	cmd.Wait()
	if cg.guard.Wait(); cmd.ProcessState.Success() {
		t.Error("it ended by itself")
	}
	for _, d := range cg.dirs {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%s is still there", d)
		}
	}
}

// TestNoCage: where no controller is mounted there is no cage, and nothing is
// left of the one that was tried; a folder that looks like a group is none.
func TestNoCage(t *testing.T) {
	dir := t.TempDir()
	c := &cage{}
	if err := c.add(dir+"/group", map[string]string{"pids.max": "1"}); err == nil || len(c.dirs) != 0 {
		t.Errorf("a plain folder is taken for a cgroup: %v", err)
	}
	if _, err := os.Stat(dir + "/group"); err == nil {
		t.Error("a folder is left")
	}
}
