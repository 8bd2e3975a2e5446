package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bermhq/berm/api"
)

// TestFullDisk is TestFull on a real file system: a small tmpfs in a mount
// namespace of a child, which the kernel takes back with it.
func TestFullDisk(t *testing.T) {
	dir := os.Getenv("BERM_STORE_TEST_FULL")
	if dir == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), "BERM_STORE_TEST_FULL="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("a mount namespace needs root")
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir, Options{ReserveBytes: 256 << 10})
	hog, err := os.Create(filepath.Join(dir, "hog"))
	if err != nil {
		t.Fatal(err)
	}
	defer hog.Close()
	for err == nil {
		_, err = hog.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	ctx := context.Background()
	acked := 0
	for err = nil; err == nil && acked < 10_000; {
		if err = s.Append(ctx, event("a.b", "", `{"text":"what fills the last page of the file"}`)); err == nil {
			acked++
		}
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeAuditFailed || s.Degraded() == "" {
		t.Fatalf("%v, degraded: %q", err, s.Degraded())
	}
	if err := s.Note(event("sandbox.ended", "s1", `{"ending":"killed"}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		return len(all(t, s.log, Query{Types: []string{"sandbox.ended"}})) == 1 && len(all(t, s.log, Query{Types: []string{api.EventHostDegraded}})) == 1
	})
	if s.Degraded() == "" {
		t.Error("it takes new work on a full disk")
	}
	if err := hog.Truncate(0); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return s.Degraded() == "" })
	if err := s.Append(ctx, event("a.b", "", "")); err != nil {
		t.Fatal(err)
	}
	head := s.Head()
	if v, err := s.Verify(ctx, &head); err != nil || !v.OK || v.TailUnproven {
		t.Errorf("%+v, %v", v, err)
	}
	if got := all(t, s.log, Query{Types: []string{"a.b"}, Limit: MaxEvents}); len(got) != acked+1 {
		t.Errorf("%d events, %d were acknowledged", len(got), acked+1)
	}
	// A state that does not fit is refused, and what is there stays.
	b := s.Bucket("b")
	if err := b.Put("small", 1); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = hog.Write(make([]byte, 4096))
	}
	for i := 0; ; i++ {
		if err := b.Put(fmt.Sprintf("k%d", i), make([]byte, 64<<10)); err != nil {
			if !errors.As(err, &e) || e.Code != api.CodeAuditFailed || !strings.Contains(e.Hint, "disk of the daemon's host") {
				t.Errorf("%#v", err)
			}
			break
		}
		if i > 1000 {
			t.Fatal("it never fills")
		}
	}
	if err := hog.Truncate(0); err != nil {
		t.Fatal(err)
	}
	// It goes on by itself, and who runs the node can see all of it.
	eventually(t, func() bool { return s.Degraded() == "" })
	if err := b.Put("more", 2); err != nil {
		t.Error(err)
	}
	q := Query{Types: []string{api.EventHostDegraded}, Tenant: api.DefaultTenant}
	said := map[string]int{}
	eventually(t, func() bool {
		clear(said)
		for _, e := range all(t, s.log, q) {
			var d struct{ Part, State string }
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
			said[d.Part+" "+d.State]++
		}
		return said["state recovered"] > 0
	})
	if said["audit degraded"] == 0 || said["audit recovered"] == 0 || said["state degraded"] == 0 {
		t.Errorf("%v", said)
	}
	n := 0
	if err := b.Each(func(string, json.RawMessage) error { n++; return nil }); err != nil || n < 2 {
		t.Error(n, err)
	}
}
