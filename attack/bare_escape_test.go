package attack

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBareEscape is the negative control of the cases that read what only the
// host has: each, run by root on this host without Berm, must bring it out. What
// this host has no such fact of is skipped.
func TestBareEscape(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: programs that run bare are to have all there is")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3, which these attacks are written in")
	}
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	p, err := plant()
	if err != nil {
		t.Fatal(err)
	}
	defer p.uproot()
	facts, err := json.Marshal(p.target)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	n, only := 0, os.Getenv("BERM_TEST_CASE")
	for _, c := range all {
		if c.Fact == "" || !strings.Contains(c.ID, only) {
			continue
		}
		n++
		t.Run(c.ID, func(t *testing.T) {
			there := false
			for _, needle := range p.needles {
				there = there || strings.HasPrefix(needle.name, c.Fact)
			}
			if !there {
				t.Skip("this host does not tell: " + c.Fact)
			}
			out, said, _ := bareHere(t, p, c, string(facts))
			for name := range out.found {
				if strings.HasPrefix(name, c.Fact) {
					return
				}
			}
			t.Errorf("even without Berm it brings nothing out\n%s", said)
		})
	}
	if n < 20 && only == "" {
		t.Errorf("%d programs", n)
	}
}
