package daemon

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
)

// packed is a program as `make build` packs it, or with a wrong sum.
func packed(content, sum string) Program {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, content)
	z.Close()
	if sum == "" {
		h := sha256.Sum256([]byte(content))
		sum = hex.EncodeToString(h[:])
	}
	return Program{Name: "prog", Files: fstest.MapFS{"prog.gz": {Data: b.Bytes()}, "prog.sha256": {Data: []byte(sum + "\n")}}}
}

func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	p := packed("#!/bin/true\n", "")
	var wg sync.WaitGroup
	for range 8 { // whoever comes first; all get the whole file
		wg.Go(func() {
			path, err := unpack(dir, p)
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "#!/bin/true\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	wg.Wait()
	path, err := unpack(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	fi, _ := os.Stat(path)
	if fi.Mode().Perm() != 0o755 {
		t.Errorf("mode %v", fi.Mode())
	}
	if ents, _ := os.ReadDir(filepath.Dir(path)); len(ents) != 1 {
		t.Errorf("%d files beside the program", len(ents)-1)
	}
	ancient := filepath.Join(dir, "runtimes", "ancient")
	os.Mkdir(ancient, 0o700)
	long := time.Now().Add(-48 * time.Hour)
	os.Chtimes(ancient, long, long)
	old := path
	if path, err = unpack(dir, packed("another", "")); err != nil || path == old {
		t.Errorf("another program is at %s, %v", path, err)
	}
	if _, err := os.Stat(ancient); err == nil {
		t.Error("what an upgrade replaced long ago is still there")
	}
	if _, err := os.Stat(old); err != nil {
		t.Error("what was used today is gone")
	}
}

func TestUnpackRefuses(t *testing.T) {
	for name, p := range map[string]Program{
		"wrong sum":    packed("x", strings.Repeat("0", 64)),
		"no sum":       {Name: "prog", Files: fstest.MapFS{"prog.gz": {}}},
		"not packed":   {Name: "prog", Files: fstest.MapFS{}},
		"not gzip":     {Name: "prog", Files: fstest.MapFS{"prog.gz": {Data: []byte("junk")}, "prog.sha256": {Data: []byte(strings.Repeat("0", 64))}}},
		"path for sum": packed("x", "../../../../../../../../../../../../../../../../../../../../../x/"),
	} {
		dir := t.TempDir()
		if path, err := unpack(dir, p); err == nil {
			t.Errorf("%s: unpacked to %s", name, path)
		}
		if files, _ := filepath.Glob(dir + "/runtimes/*/*"); len(files) > 0 {
			t.Errorf("%s: left %v", name, files)
		}
	}
	var ae *api.Error
	if _, err := unpack(t.TempDir(), Program{Name: "prog", Files: fstest.MapFS{}}); !errors.As(err, &ae) || ae.Hint != "make build" {
		t.Errorf("a berm without its programs says %v", err)
	}
}

func TestAgentImage(t *testing.T) {
	dir := t.TempDir()
	store := image.Open(filepath.Join(dir, "templates"))
	p := packed("agent", "")
	first, err := agentImage(context.Background(), dir, store, p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := agentImage(context.Background(), dir, store, p); err != nil || again != first {
		t.Errorf("again: %s, %v", again, err)
	}
	// The note outlives the image: the image is made anew.
	if err := os.Remove(store.Path(first)); err != nil {
		t.Fatal(err)
	}
	if again, err := agentImage(context.Background(), dir, store, p); err != nil || again != first {
		t.Errorf("after the image went: %s, %v", again, err)
	}
	if _, err := os.Stat(store.Path(first)); err != nil {
		t.Error(err)
	}
}

func TestStateDir(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BERM_STATE", dir+"/from-env")
	if got, err := StateDir(""); err != nil || got != dir+"/from-env" {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := StateDir(dir + "/flag"); err != nil || got != dir+"/flag" {
		t.Errorf("%s, %v", got, err)
	}
	t.Setenv("BERM_STATE", "")
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	if os.Geteuid() != 0 {
		if _, err := StateDir(""); err == nil || !strings.Contains(err.Error(), "HOME is not set") {
			t.Errorf("without HOME: %v", err)
		}
	}
	os.WriteFile(dir+"/file", nil, 0o644)
	var ae *api.Error
	if _, err := StateDir(dir + "/file/below"); !errors.As(err, &ae) || ae.Hint == "" {
		t.Errorf("a file in the way: %v", err)
	}
}

// Connections pass from one process to the other, and the end of one end is
// the end of the other.
func TestHandoff(t *testing.T) {
	a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := jail.Conn(a)
	cb, _ := jail.Conn(b)
	ours, theirs := handoff{ca}, handoff{cb}
	if err := ours.tell(setup{Agent: "x", Images: map[string]image.Root{"host": {Layers: []string{"y"}}}}); err != nil {
		t.Fatal(err)
	}
	var s setup
	if err := theirs.hear(&s); err != nil || s.Agent != "x" || s.Images["host"].Layers[0] != "y" {
		t.Fatalf("heard %+v, %v", s, err)
	}
	conn, err := ours.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := theirs.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { io.Copy(peer, peer); peer.Close() }()
	io.WriteString(conn, "hello")
	conn.(*net.UnixConn).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	ours.Close()
	if _, err := theirs.Accept(); err == nil {
		t.Error("accepted from a caller that is gone")
	}
}

// A template that changed leaves no pile of its earlier states behind.
func TestDropOld(t *testing.T) {
	dir, tmpl, other := t.TempDir(), t.TempDir(), t.TempDir()
	store := image.Open(dir)
	build := func(from, content string) image.Image {
		t.Helper()
		if err := os.WriteFile(filepath.Join(from, "f"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		img, err := store.Resolve(context.Background(), from, image.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	age := func(img image.Image) { // an hour
		path := strings.TrimSuffix(img.Path, ".erofs") + ".json"
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, _ := store.Manifest(img.Name)
		old := m.Created.Add(-time.Hour)
		was, _ := json.Marshal(m.Created)
		now, _ := json.Marshal(old)
		os.WriteFile(path, bytes.Replace(b, was, now, 1), 0o600)
	}
	first, foreign := build(tmpl, "one"), build(other, "else")
	age(first)
	age(foreign)
	young := build(tmpl, "two!")
	last := build(tmpl, "three")
	dropOld(store, last, func(string) bool { return false })
	for _, c := range []struct {
		name string
		img  image.Image
		kept bool
	}{{"an earlier state", first, false}, {"another template", foreign, true}, {"a young one", young, true}, {"the present one", last, true}} {
		if _, err := os.Stat(c.img.Path); (err == nil) != c.kept {
			t.Errorf("%s: kept %v, want %v", c.name, err == nil, c.kept)
		}
	}
}

// A state directory that somebody else could have changed is not believed.
func TestTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: gives directories away")
	}
	for _, tt := range []struct {
		name  string
		spoil func(parent, dir string)
		ok    bool
	}{
		{"ours", func(string, string) {}, true},
		{"closed", func(_, d string) { os.Chmod(d, 0o700) }, true},
		{"writable by the group", func(_, d string) { os.Chmod(d, 0o770) }, false},
		{"writable by all", func(_, d string) { os.Chmod(d, 0o777|os.ModeSticky) }, false},
		{"somebody's", func(_, d string) { os.Chown(d, 12345, 12345) }, false},
		{"below somebody's: a user's clone, run with sudo", func(p, _ string) { os.Chown(p, 12345, 12345); os.Chmod(p, 0o775) }, true},
		{"below one that all may write", func(p, _ string) { os.Chmod(p, 0o777) }, false},
		{"below one with the sticky bit", func(p, _ string) { os.Chmod(p, 0o777|os.ModeSticky) }, true},
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "state")
		os.Mkdir(dir, 0o755)
		tt.spoil(parent, dir)
		if _, err := StateDir(dir); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestTemplateName(t *testing.T) {
	for path, want := range map[string]string{
		"/a/rootfs.tar": "rootfs.tar", "/a/my root": "my_root", "/a/.hidden": "_hidden", "/a/wörld": "w_rld",
		"/" + strings.Repeat("x", 300): strings.Repeat("x", 128),
	} {
		if got := templateName(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
