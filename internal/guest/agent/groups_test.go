package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMembership(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	text := "root:x:0:\nstaff:x:50:node,other\nown:x:7:node\nbad:x:y:node\nshort:x\ntag:x:2000000001:node\nagain:x:50:node\n\nlast:x:9:other,node"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := membership(accounts(path), "node", 7); !slices.Equal(got, []uint32{50, 9}) {
		t.Errorf("%v", got)
	}
	if got := membership(accounts(path), "", 7); got != nil {
		t.Errorf("nobody is in %v", got)
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "g%d:x:%d:node\n", i, 100+i)
	}
	os.WriteFile(path, []byte(many.String()), 0o644)
	if got := membership(accounts(path), "node", 7); len(got) != maxGroups {
		t.Errorf("%d groups", len(got))
	}
	if got := membership(accounts(filepath.Dir(path)), "node", 7); got != nil {
		t.Errorf("of a directory: %v", got)
	}
	if groupsOf(0, 0) != nil || groupsOf(1000, 1000) != nil {
		t.Error("the agent and root have groups")
	}
}
