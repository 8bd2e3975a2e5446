package testkit

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bermhq/berm/internal/guest"
)

// Layers says what a root of several layers shows, by absolute paths.
type Layers struct {
	Over    string   // from a layer above the lowest
	Hidden  []string // in a lower layer, and hidden by one above
	Dir     string   // a directory of both
	InDir   []string // all that is in it
	Content string   // of Over
}

// testLayers: upper layers hide what they say, and nothing else.
func testLayers(t *testing.T, b *bench) {
	if b.Layers == nil {
		t.Skip("roots of this suite have one layer")
	}
	_, c := b.start(t, b.spec())
	l := b.Layers
	r, err := c.ReadFile(t.Context(), l.Over, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(got) != l.Content {
		t.Errorf("%s holds %q, %v", l.Over, got, err)
	}
	for _, p := range l.Hidden {
		if _, err := c.Stat(t.Context(), p); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%s, which a layer hides: %v", p, err)
		}
	}
	list, err := c.List(t.Context(), l.Dir, 1, 100)
	var names []string
	for _, i := range list {
		names = append(names, strings.TrimPrefix(i.Path, l.Dir+"/"))
	}
	if err != nil || !slices.Equal(names, l.InDir) {
		t.Errorf("%s holds %q, %v; want %q", l.Dir, names, err, l.InDir)
	}
	// What a layer hides can be made anew, and is empty then.
	if len(l.Hidden) == 0 || b.UID == 0 {
		return
	}
	if err := c.Mkdir(t.Context(), l.Hidden[0]+"/new", 0o755, b.UID, b.GID); err != nil {
		t.Error(err)
	}
	if list, err := c.List(t.Context(), l.Hidden[0], 5, 100); err != nil || len(list) != 1 {
		t.Errorf("made anew it holds %d entries, %v", len(list), err)
	}
}

// testChanges: what was written below a directory comes as a layer.
func testChanges(t *testing.T, b *bench) {
	s := b.spec()
	s.Track = false
	if len(s.Upper) == 0 {
		_, c := b.start(t, s)
		if _, err := c.Changes(t.Context(), "/"); !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("changes of one that is not tracked: %v", err)
		}
	}
	s = b.spec()
	s.Track = true
	_, c := b.start(t, s)
	dir := b.command(t, "true").Dir
	if got := changes(t, c, dir); len(got) != 0 {
		t.Errorf("before anything was written: %v", got)
	}
	if _, err := c.Changes(t.Context(), "/none/of/this"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("changes of a directory that is not there: %v", err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(c.WriteFile(t.Context(), dir+"/a/b/f", 0o640, b.UID, b.GID, strings.NewReader("content")))
	check(c.WriteFile(t.Context(), dir+"/gone", 0o644, b.UID, b.GID, strings.NewReader("x")))
	check(c.Remove(t.Context(), dir+"/gone", false))
	check(c.Mkdir(t.Context(), dir+"/empty", 0o700, b.UID, b.GID))
	got := changes(t, c, dir)
	for name, want := range map[string]string{"a/": "dir 755", "a/b/": "dir 755", "a/b/f": "file 640 content", "empty/": "dir 700"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	for name, what := range got {
		t.Errorf("%s: %s, and nobody changed it", name, what)
	}
	if got = changes(t, c, dir+"/a/b"); len(got) != 1 || got["f"] == "" {
		t.Errorf("of a directory below: %v", got)
	}
	// Nobody has to read it to the end.
	r, err := c.Changes(t.Context(), "/")
	check(err)
	check(r.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Changes(ctx, "/"); !errors.Is(err, context.Canceled) {
		t.Errorf("after its caller left: %v", err)
	}
}

// changes asks for what changed and describes each entry in a word.
func changes(t *testing.T, c *guest.Client, dir string) map[string]string {
	t.Helper()
	r, err := c.Changes(t.Context(), dir)
	if err != nil {
		t.Fatalf("changes of %s: %v", dir, err)
	}
	defer r.Close()
	out := map[string]string{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("changes of %s: %v", dir, err)
		}
		if _, twice := out[h.Name]; twice {
			t.Errorf("%s comes twice", h.Name)
		}
		what := fmt.Sprintf("%c %o", h.Typeflag, h.Mode)
		switch h.Typeflag {
		case tar.TypeDir:
			what = fmt.Sprintf("dir %o", h.Mode)
		case tar.TypeSymlink:
			what = "to " + h.Linkname
		case tar.TypeLink:
			what = "same as " + h.Linkname
		case tar.TypeReg:
			head, err := io.ReadAll(io.LimitReader(tr, 64))
			n, rest := io.Copy(io.Discard, tr)
			if err != nil || rest != nil || n+int64(len(head)) != h.Size {
				t.Errorf("%s: %d of %d bytes, %v", h.Name, n+int64(len(head)), h.Size, errors.Join(err, rest))
			}
			what = fmt.Sprintf("file %o %s", h.Mode, strings.TrimRight(string(head), "\n"))
			if h.Size > 64 {
				what = fmt.Sprintf("file %o of %d bytes", h.Mode, h.Size)
			}
		}
		out[h.Name] = what
	}
}

// A file of hole MiB without content but three bytes at mid, and three at its end.
// Reading what is not there takes long where the processor is emulated.
var hole, mid = either[int64](1200, 120), either[int64](1_000_000_000, 100_000_000)

// testChangesAll: everything that a program can do to a tree.
func testChangesAll(t *testing.T, b *bench) {
	if len(b.Commands["bash"]) == 0 && b.Image == "" {
		t.Skip("no shell")
	}
	s := b.spec()
	s.Track = true
	_, c := b.start(t, s)
	b.shell(t, c, `set -e
cd /workspace
echo one >f; ln f g; mkdir d; ln f d/h; ln -s ../nowhere d/l; mkfifo p
chmod 4711 f
truncate -s `+fmt.Sprint(hole)+`M holes; printf end >>holes; printf mid | dd of=holes bs=1 seek=`+fmt.Sprint(mid)+` conv=notrunc status=none
truncate -s 256M hollow
dd if=/dev/zero of=zeros bs=100K count=30 status=none
touch -d @86400.5 old
mkdir -p deep/er/est; echo x >deep/er/est/x; rm -r deep/er
exec 9>>/usr/share/nothing.$$ 2>/dev/null || true
cat /etc/passwd /etc/hostname >/dev/null
find /usr/bin >/dev/null
ls -l /proc/self/fd >/dev/null
python3 - <<PYDONE
import socket, os
s = socket.socket(socket.AF_UNIX); s.bind("sock")
os.mkdir("many")
for i in range(`+fmt.Sprint(either(2000, 50))+`): open(f"many/{i}", "w").close()
n = "x" * 200
os.makedirs("/".join([n] * 5)); open("/".join([n] * 5) + "/f", "w").close()
PYDONE
`)
	long := strings.Repeat(strings.Repeat("x", 200)+"/", 5)
	got := changes(t, c, "/")
	for name, want := range map[string]string{
		"workspace/":       "dir 755",
		"workspace/d/":     "dir 755",
		"workspace/d/h":    "file 4711 one",
		"workspace/f":      "same as workspace/d/h",
		"workspace/g":      "same as workspace/d/h",
		"workspace/d/l":    "to ../nowhere",
		"workspace/p":      "6 644",
		"workspace/holes":  fmt.Sprintf("file 644 of %d bytes", hole<<20+3),
		"workspace/hollow": "file 644 of 268435456 bytes",
		"workspace/zeros":  "file 644 of 3072000 bytes",
		"workspace/old":    "file 644 ",
		"workspace/deep/":  "dir 755",
		"workspace/many/":  "dir 755",

		"workspace/" + long + "f": "file 644 ",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	for name, what := range got {
		if !strings.HasPrefix(name, "workspace/many/") && !strings.HasPrefix("workspace/"+long, name) {
			t.Errorf("%s: %s, and nobody changed it", name, what)
		}
	}
	testChangesSparse(t, b, c)
	testChangesGone(t, b, c)
}

// testChangesSparse: times, owners, and holes that are not sent.
func testChangesSparse(t *testing.T, b *bench, c *guest.Client) {
	r, err := c.Changes(t.Context(), "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := int64(0)
	for tr := tar.NewReader(io.TeeReader(r, counter{&n})); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "old" && (h.ModTime.UnixNano() != 86400_500_000_000 || h.Uid != int(b.UID) || h.Gid != int(b.GID)) {
			t.Errorf("times and owners: %+v", h)
		}
		if h.Name != "holes" {
			continue
		}
		buf := make([]byte, 1<<20)
		for at, err := int64(0), error(nil); err == nil; {
			var k int
			k, err = tr.Read(buf)
			for i, c := range buf[:k] {
				if p := at + int64(i); c != 0 && (p < mid || p >= mid+3 && p < hole<<20) {
					t.Fatalf("a byte at %d", p)
				}
			}
			at += int64(k)
		}
	}
	if n > 20<<20 {
		t.Errorf("holes were sent: %d bytes", n)
	}
}

// testChangesGone: deletions, and what takes the place of what is gone, in the
// directory base that the layers of the suite have.
func testChangesGone(t *testing.T, b *bench, c *guest.Client) {
	if b.Layers == nil {
		return
	}
	b.shell(t, c, `set -e
cd /home/agent/base
rm file; rm -r dir; rm -r again; mkdir again; echo new >again/new
rm -r turned; echo file >turned
rm tofile; mkdir tofile
exec 9<>kept; exec 9>&-
chmod 600 kept2; chmod 644 kept2
cp -p kept3 /tmp/k; rm kept3; cp -p /tmp/k kept3; rm /tmp/k
mv moved moved2
chmod 700 mode
`)
	got := changes(t, c, "/home/agent/base")
	for name, want := range map[string]string{
		".wh.file":           "file 0 ",
		".wh.dir":            "file 0 ",
		"again/":             "dir 755",
		"again/.wh..wh..opq": "file 0 ",
		"again/new":          "file 644 new",
		"turned":             "file 644 file",
		"tofile/":            "dir 755",
		".wh.moved":          "file 0 ",
		"moved2":             "file 644 moved",
		"mode/":              "dir 700",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		delete(got, name)
	}
	for name, what := range got {
		t.Errorf("%s: %s, and nobody changed it", name, what)
	}
	b.shell(t, c, "rm -r /home/agent/base")
	if got := changes(t, c, "/home/agent"); len(got) != 1 || got[".wh.base"] == "" {
		t.Errorf("all of it is gone: %v", got)
	}
	if got := changes(t, c, "/home/agent/base"); len(got) != 1 || got[".wh..wh..opq"] == "" {
		t.Errorf("of a directory that is gone: %v", got)
	}
	b.shell(t, c, "mkdir /home/agent/base; echo x >/home/agent/base/x")
	if got := changes(t, c, "/home/agent/base"); len(got) != 2 || got[".wh..wh..opq"] == "" || got["x"] != "file 644 x" {
		t.Errorf("of one that is new: %v", got)
	}
}

type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return len(p), nil
}
