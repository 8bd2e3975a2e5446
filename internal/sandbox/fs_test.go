package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// Without a mode what is replaced keeps its own.
func TestWriteKeepsTheMode(t *testing.T) {
	r, _ := newDurable(t, quick)
	id, ctx := r.create(t, api.Limits{}), t.Context()
	if _, err := r.WriteFile(ctx, id, "/workspace/a/b/f", 0o751, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]uint32{"/workspace/a/b/f": 0o751, "/workspace/new": 0o644, "/run/new": 0o600} {
		if _, err := r.WriteFile(ctx, id, p, 0, strings.NewReader("hello")); err != nil {
			t.Fatal(err)
		}
		if i, err := r.Stat(ctx, id, p); err != nil || i.Mode != want {
			t.Errorf("no mode given: %+v, %v, want %o", i, err, want)
		}
	}
}

func TestFiles(t *testing.T) {
	r, p := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	ctx := t.Context()
	if n, err := r.WriteFile(ctx, id, "/workspace/a/b/f", 0o600, strings.NewReader("hello")); n != 5 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if i, err := r.Stat(ctx, id, "/workspace/a/b/f"); err != nil || i.Kind != "file" || i.Size != 5 || i.Mode != 0o600 || time.Since(time.Unix(i.MTime, 0)) > time.Minute || i.Path != "/workspace/a/b/f" {
		t.Errorf("%+v, %v", i, err)
	}
	if err := r.Mkdir(ctx, id, "/workspace/d/e"); err != nil {
		t.Error(err)
	}
	if err := r.Move(ctx, id, "/workspace/a/b/f", "/workspace/d/e/g"); err != nil {
		t.Error(err)
	}
	f, err := r.TarOut(ctx, id, "/workspace/d", nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.Trim(strings.TrimPrefix(h.Name, "./"), "/"))
	}
	if _, err := io.Copy(io.Discard, f); err != nil || !slices.Contains(names, "e/g") {
		t.Errorf("%q, %v", names, err)
	}
	f.Close()
	if err := r.Remove(ctx, id, "/workspace/d"); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		do   func() error
		code string
	}{
		"gone":          {func() error { _, err := r.Stat(ctx, id, "/workspace/d"); return err }, api.CodeFileNotFound},
		"below a file":  {func() error { _, err := r.Stat(ctx, id, "/workspace/a/b/f/x"); return err }, api.CodeFileNotFound},
		"relative stat": {func() error { _, err := r.Stat(ctx, id, "x"); return err }, api.CodeBadRequest},
		"relative":      {func() error { _, err := r.WriteFile(ctx, id, "x", 0, strings.NewReader("")); return err }, api.CodeBadRequest},
		"mkdir":         {func() error { return r.Mkdir(ctx, id, "../x") }, api.CodeBadRequest},
		"move to":       {func() error { return r.Move(ctx, id, "/workspace/a", "x") }, api.CodeBadRequest},
		"move nothing":  {func() error { return r.Move(ctx, id, "/workspace/none", "/workspace/x") }, api.CodeFileNotFound},
		"remove root":   {func() error { return r.Remove(ctx, id, "/workspace/../..") }, api.CodeBadRequest},
		"tar of above":  {func() error { _, err := r.TarOut(ctx, id, "/workspace", []string{"a/../../x"}); return err }, api.CodeBadRequest},
		"tar of all":    {func() error { _, err := r.TarOut(ctx, id, "/workspace", []string{"/etc"}); return err }, api.CodeBadRequest},
		"zero":          {func() error { _, err := r.Stat(ctx, id, "/a\x00b"); return err }, api.CodeBadRequest},
		"read nothing":  {func() error { _, err := r.ReadFile(ctx, id, "/workspace/none", 1); return err }, api.CodeFileNotFound},
		"no port":       {func() error { _, err := r.Dial(ctx, id, 70000); return err }, api.CodeBadRequest},
	} {
		if err := tt.do(); code(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := p.types(id); len(got) != 2+5 { // write, mkdir, move, tar-out, remove: what failed is not there
		t.Errorf("events = %q", got)
	}
	if err := r.Mkdir(ctx, id, "/workspace/x"); err != nil {
		t.Fatal(err)
	}
	p.breaks(func(what string) error {
		if what == api.EventFileRead {
			return errors.New("disk full")
		}
		return nil
	})
	r.WriteFile(ctx, id, "/workspace/f", 0, strings.NewReader("x"))
	f, err = r.ReadFile(ctx, id, "/workspace/f", 10)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := readAll(f); code(err) != api.CodeAuditFailed || b != "x" {
		t.Errorf("a read that is not recorded ends well: %q, %v", b, err)
	}
}

// A file is moved through, never held.
func TestBigFile(t *testing.T) {
	r, p := newDurable(t, sandbox.Options{})
	id := r.create(t, api.Limits{DiskBytes: 1 << 30})
	const size = 80 << 20 // beyond what is hashed
	if n, err := r.WriteFile(t.Context(), id, "/workspace/big", 0, io.LimitReader(zeros{}, size)); n != size || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	f, err := r.ReadFile(t.Context(), id, "/workspace/big", 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, f); n != size || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	f.Close()
	var d struct {
		Bytes  int64
		SHA256 string
		Partly bool
	}
	p.last(t, api.EventFileRead, &d)
	if d.Bytes != size || d.SHA256 != "" || d.Partly {
		t.Errorf("%+v", d)
	}
	f, _ = r.ReadFile(t.Context(), id, "/workspace/big", 1<<40)
	f.Read(make([]byte, 100))
	f.Close()
	if p.last(t, api.EventFileRead, &d); !d.Partly {
		t.Errorf("%+v", d)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWatch(t *testing.T) {
	r, _ := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan api.FileEvent, 16)
	done := make(chan error, 1)
	go func() {
		done <- r.Watch(ctx, id, "/workspace", true, func(ev api.FileEvent) error { seen <- ev; return nil })
	}()
	select {
	case ev := <-seen:
		if ev.Op != sandbox.WatchReady {
			t.Errorf("%+v", ev)
		}
	case err := <-done:
		t.Skipf("no watches here: %v", err)
	}
	r.WriteFile(t.Context(), id, "/workspace/f", 0, strings.NewReader("x"))
	select {
	case ev := <-seen:
		if !strings.HasPrefix(ev.Path, "/workspace/") {
			t.Errorf("%+v", ev)
		}
	case <-time.After(5 * time.Second):
		t.Error("nothing was seen")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	r, _ := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	l, err := net.Listen("tcp", "127.0.0.1:0") // the fake's loopback is this one
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	c, err := r.Dial(t.Context(), id, port)
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("ping"))
	c.(interface{ CloseWrite() error }).CloseWrite()
	if b, err := io.ReadAll(c); err != nil || !bytes.Equal(b, []byte("ping")) {
		t.Errorf("%q, %v", b, err)
	}
	c.Close()
	c.Close()
	l.Close()
	if _, err := r.Dial(t.Context(), id, port); code(err) != api.CodePortClosed {
		t.Errorf("%v", err)
	}
}

// No file operation waits for a guest that is silent, drips or lies.
func TestFilesOfHostileGuests(t *testing.T) {
	for _, h := range testkit.HostileGuests() {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			opt := quick
			opt.Listing = 200 * time.Millisecond
			r := newRigBeside(t, opt)
			r.flaky.Conn = func(c net.Conn) net.Conn { c.Close(); return h.Dial() }
			id := r.create(t, api.Limits{TimeoutSeconds: 1})
			sb, err := r.Create(t.Context(), api.CreateRequest{Track: true})
			if err != nil {
				t.Fatal(err)
			}
			tracked := sb.SandboxID
			began := time.Now()
			for _, do := range []func() error{
				func() error { _, err := r.Stat(t.Context(), id, "/x"); return err },
				func() error { _, err := r.WriteFile(t.Context(), id, "/x", 0, strings.NewReader("x")); return err },
				func() error { _, err := r.TarOut(t.Context(), id, "/x", nil); return err },
				func() error { _, err := r.Changes(t.Context(), tracked, "/x"); return err },
				func() error { _, err := r.Dial(t.Context(), id, 80); return err },
				func() error { _, err := r.Ports(t.Context(), id); return err },
				func() error {
					return r.Watch(t.Context(), id, "/x", false, func(api.FileEvent) error { return io.ErrClosedPipe })
				},
				func() error {
					x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"x"}})
					if err == nil {
						_, err = r.Follow(t.Context(), id, x.ExecID, 0, true, func(api.Chunk) error { return nil })
					}
					return err
				},
			} {
				do()
			}
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
			for _, id := range []string{id, tracked} {
				if _, err := r.Delete(t.Context(), id); err != nil {
					t.Errorf("Delete: %v", err)
				}
			}
		})
	}
}
