package here

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// A fake is a server in memory that stacks layers as overlayfs shows them.
type fake struct {
	trees  map[string]map[string]string // path to what is there
	puts   int
	layers map[string]int
	n      int
}

func newFake() *fake { return &fake{trees: map[string]map[string]string{}, layers: map[string]int{}} }

func (f *fake) Workspace(_ context.Context, id string) (api.WorkTree, error) {
	if f.trees[id] == nil {
		return api.WorkTree{}, &api.Error{Code: api.CodeWorkspaceNotFound, Message: "no workspace " + id}
	}
	return api.WorkTree{WorkspaceID: id, Layers: f.layers[id]}, nil
}

func (f *fake) PutWorkspace(ctx context.Context, parent string, r io.Reader) (api.WorkTree, error) {
	tree := map[string]string{}
	if parent != "" {
		if _, err := f.Workspace(ctx, parent); err != nil {
			return api.WorkTree{}, err
		}
		tree = maps.Clone(f.trees[parent])
	}
	drop := func(p string) {
		for q := range tree {
			if q == p || strings.HasPrefix(q, p+"/") {
				delete(tree, q)
			}
		}
	}
	upper := map[string]string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return api.WorkTree{}, err
		}
		p := path.Clean(h.Name)
		if name, ok := strings.CutPrefix(path.Base(p), ".wh."); ok {
			drop(path.Join(path.Dir(p), name))
			continue
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			return api.WorkTree{}, err
		}
		if _, twice := upper[p]; twice {
			return api.WorkTree{}, errors.New(p + " comes twice")
		}
		upper[p] = fmt.Sprintf("%c %03o %s%s", map[byte]byte{tar.TypeDir: Dir, tar.TypeReg: File, tar.TypeSymlink: Link}[h.Typeflag], h.Mode, h.Linkname, data)
	}
	for p, v := range upper {
		if old, ok := tree[p]; ok && (old[0] == Dir) != (v[0] == Dir) {
			drop(p)
		}
	}
	maps.Copy(tree, upper)
	f.puts++
	f.n++
	id := fmt.Sprintf("w%030d", f.n)
	f.trees[id], f.layers[id] = tree, f.layers[parent]+1
	return api.WorkTree{WorkspaceID: id, Parent: parent, Layers: f.layers[id]}, nil
}

// onDisk is what a folder holds, as the fake shows it.
func onDisk(t testing.TB, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case fi.IsDir():
			tree[rel] = fmt.Sprintf("%c %03o ", Dir, fi.Mode().Perm())
		case fi.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			tree[rel] = fmt.Sprintf("%c %03o %s", Link, 0o777, target)
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			tree[rel] = fmt.Sprintf("%c %03o %s", File, fi.Mode().Perm(), data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func sameTrees(t testing.TB, got, want map[string]string) {
	t.Helper()
	for p, w := range want {
		if g, ok := got[p]; !ok {
			t.Errorf("%s did not go in", p)
		} else if g != w {
			t.Errorf("%s is %.60q inside, want %.60q", p, g, w)
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s is inside and should not be", p)
		}
	}
}

// put writes files: a path that ends in / is a folder, one with -> a link.
func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(strings.TrimSuffix(p, "/")), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(target, p)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func syncTree(t testing.TB, dir, state string, srv Server, opt Options) *Synced {
	t.Helper()
	tree, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	st, err := OpenState(state)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := tree.Scan(st, "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := sc.Sync(t.Context(), srv, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
