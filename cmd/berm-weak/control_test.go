package main

import (
	"testing"

	"github.com/bermhq/berm/attack"
)

// unbuilt are walls that cannot be taken out, and why.
var unbuilt = map[string]string{
	"snapshot": "waits for snapshots to be published at all",
}

// TestEveryWallHasAControl: whatever a case can name can be taken out.
func TestEveryWallHasAControl(t *testing.T) {
	for name := range attack.Walls {
		_, ok := find(name)
		switch why := unbuilt[name]; {
		case !ok && why == "":
			t.Errorf("wall %s cannot be taken out: nobody knows whether its cases can fail", name)
		case ok && why != "":
			t.Errorf("wall %s can be taken out, and the list says why not", name)
		}
	}
	for name := range unbuilt {
		if attack.Walls[name] == "" {
			t.Errorf("%s is no wall", name)
		}
	}
}

// TestEveryAttackCanFail: each case that names a wall turns red without it, or
// says why it does not; and each wall has one that does.
func TestEveryAttackCanFail(t *testing.T) {
	all, err := attack.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range walls {
		if len(w.red()) == 0 || attack.Walls[w.name] == "" {
			t.Errorf("wall %s has no case, or is none of attack.Walls", w.name)
		}
	}
	for _, c := range all {
		if c.Bare != "" && c.Stays != "" {
			t.Errorf("%s says twice why it cannot fail", c.ID)
		}
		if unbuilt[c.Wall] != "" && c.Waits == "" {
			t.Errorf("%s has a wall that cannot be taken out", c.ID)
		}
	}
}

// TestRefusesWithoutAWall: nobody gets a weak berm without having named how.
func TestRefusesWithoutAWall(t *testing.T) {
	for _, name := range []string{"", "all", "none", "env,files"} {
		if _, ok := find(name); ok {
			t.Errorf("%q names a wall", name)
		}
	}
	seen := map[string]bool{}
	for _, w := range append(walls, narrow) {
		if seen[w.name] || w.without == "" {
			t.Errorf("wall %q is there twice, or does not say what is missing", w.name)
		}
		seen[w.name] = true
		if !w.out() {
			t.Errorf("wall %q is not taken out", w.name)
		}
	}
}
