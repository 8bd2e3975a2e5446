package here

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestIndex(t *testing.T) {
	ix := &index{ID: "w1", Parent: "w0", Base: "w0", Layers: 2, Bytes: 77, At: 1 << 60, byPath: map[string]int32{"a": 0, "a/b": 1, "a/bc": 2}, entries: []Entry{
		{Path: "a", Kind: Dir, Mode: 0o755, stamp: stamp{1, 2, 3, -4, 5}},
		{Path: "a/b", Kind: File, Mode: 0o644, Size: 9, Hash: sha256.Sum256([]byte("x")), known: true, secret: true, out: true, stamp: stamp{1, 2, 3, 4, 5}},
		{Path: "a/bc", Kind: Link, Mode: 0o777, Target: "../\xff\n", clean: true},
	}}
	p := filepath.Join(t.TempDir(), "head")
	if err := saveIndex(p, ix); err != nil {
		t.Fatal(err)
	}
	if got := loadIndex(p); !reflect.DeepEqual(got, ix) {
		t.Errorf("%+v", got)
	}
	data := ix.encode()
	for i := range data { // whatever a disk does to it
		bad := append([]byte(nil), data...)
		bad[i] ^= 0x40
		if _, err := decodeIndex(bad); err == nil {
			t.Fatalf("byte %d may be anything", i)
		}
		if _, err := decodeIndex(data[:i]); err == nil {
			t.Fatalf("it may end at %d", i)
		}
	}
}

func TestRuns(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1"})
	for range keepRuns + 3 {
		d.run(member{name: "a", data: "x"})
	}
	list := d.state.Runs()
	if len(list) != keepRuns || list[0].ID <= list[1].ID {
		t.Errorf("%d runs", len(list))
	}
	for name, cwd := range map[string]string{"last": filepath.Join(d.dir, "sub"), list[0].ID: "/", list[0].ID[:31]: "/"} {
		if r, err := d.state.Find(name, cwd); err != nil || r.ID != list[0].ID {
			t.Errorf("%s in %s: %v", name, cwd, err)
		}
	}
	for name, cwd := range map[string]string{"last": "/", "r": "/", "x": "/", "": "/", "../trees": "/"} {
		if r, err := d.state.Find(name, cwd); err == nil {
			t.Errorf("%q in %s is %s", name, cwd, r.ID)
		}
	}
	tree, _ := Open(d.dir, Options{})
	defer tree.Close()
	old := Info{ID: "rold", Tree: d.dir, Ended: time.Now().Add(-8 * 24 * time.Hour), Lost: "it is old"}
	if _, err := d.state.Keep(old, tree, nil, nil, Limits{}); err != nil {
		t.Fatal(err)
	}
	d.run(member{name: "a", data: "y"})
	if _, err := d.state.Find("rold", "/"); err == nil {
		t.Error("a run of last week is still there")
	}
	if fi, _ := os.Stat(d.state.dir); fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", fi.Mode())
	}
}
