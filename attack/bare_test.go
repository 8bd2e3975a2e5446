package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/attack/world"
)

// bareShards are how many worlds the bare programs are spread over: most of them
// wait for what does not answer.
const bareShards = 6

// inWorlds runs the calling test again in processes that may build a world, one
// for each shard, and says whether this is one of them, and which.
func inWorlds(t *testing.T) (shard int, is bool) {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("BERM_TEST_WORLD")); err == nil {
		return n, true
	}
	if why := world.Why(); why != "" {
		t.Skip(why)
	}
	for i := range bareShards {
		t.Run(fmt.Sprintf("world %d", i), func(t *testing.T) {
			t.Parallel()
			name, _, _ := strings.Cut(t.Name(), "/")
			cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v", "-test.timeout=9m")
			cmd.Env = append(os.Environ(), fmt.Sprintf("BERM_TEST_WORLD=%d", i))
			cmd.SysProcAttr = world.Attr()
			out, err := cmd.CombinedOutput()
			for line := range strings.Lines(string(out)) {
				if testing.Verbose() || err != nil {
					t.Log(strings.TrimRight(line, "\n"))
				}
			}
			if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
				t.Fatal(err)
			}
		})
	}
	return 0, false
}

// TestBare is the negative control of the family egress: the same programs, run
// by root without Berm, must reach a canary. A case that reaches none even so
// measures nothing, unless it says why.
func TestBare(t *testing.T) {
	for _, tool := range []string{"python3", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool + ", which attacks on the wire use")
		}
	}
	shard, is := inWorlds(t)
	if !is {
		return
	}
	w, err := world.Build()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	all, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	only := os.Getenv("BERM_TEST_CASE") // for those who write one
	n := 0
	for _, c := range all {
		if !c.wire() || c.StandIn != "" || !strings.Contains(c.ID, only) {
			continue
		}
		if n++; n%bareShards != shard && only == "" {
			continue
		}
		seen, said, took := bare(t, w, c)
		hits, _ := json.Marshal(seen.Hits)
		t.Logf("%s: %v: %.600s", c.ID, took.Round(10*time.Millisecond), hits)
		if only != "" {
			t.Logf("%v\n%s", seen.Good, said)
		}
		switch {
		case len(seen.Hits) == 0 && c.Bare == "":
			t.Errorf("%s reaches no canary even without Berm\n%s", c.ID, said)
		case len(seen.Hits) > 0 && c.Bare != "":
			t.Errorf("%s reaches %s, and says that it cannot: %s", c.ID, hits, c.Bare)
		}
		if c := cut(c, seen, "bare"); len(c) > 0 {
			t.Errorf("what is allowed was not reached: %v\n%s", c, said)
		}
	}
	if n < 60 && only == "" {
		t.Errorf("%d attacks on the wire", n)
	}
}

// bare runs the case's program in this process's namespaces, as this user.
func bare(t *testing.T, w *world.World, c Case) (seen world.Watch, said string, took time.Duration) {
	t.Helper()
	dir := t.TempDir()
	files, err := c.files()
	for _, f := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o755)
		}
	}
	_, names, perr := policyOf(c)
	if err != nil || perr != nil {
		t.Fatal(err, perr)
	}
	w.Begin(names)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	program := c.Files[0].Name
	cmd := exec.CommandContext(ctx, interpreters[filepath.Ext(program)], program, "bare", "{}")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "no_proxy=", "http_proxy=", "https_proxy=", "all_proxy=")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took = time.Since(began)
	if err != nil || !strings.Contains(string(out), "ended bare") {
		t.Errorf("%s does not come to its end: %v", c.ID, err)
	}
	return w.End(), fmt.Sprintf("%.6000s", out), took
}
