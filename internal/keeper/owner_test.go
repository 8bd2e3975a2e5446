package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/jail"
)

const testID = "sabcdefghijklmnopqrstuvwx"

func TestClaimAndSweep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a cgroup")
	}
	h, missing := jail.FindHierarchy()
	if len(missing) > 0 {
		t.Skipf("needs cgroups: %v", missing)
	}
	runs := filepath.Join(t.TempDir(), "runs")
	id := fmt.Sprintf("s%024d", os.Getpid()) // the same tests may run beside these
	group, err := h.Create(groupName(id), jail.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Remove(time.Second)
	left := 1
	seen := map[string]bool{}
	var dir string
	for _, d := range group.Dirs {
		if dir = d; !seen[d] {
			seen[d] = true
			left++
		}
	}
	c, err := claimRun(runs, record{ID: id, Keeper: 1, Created: time.Now(), Cgroup: group})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claimRun(runs, record{ID: id}); err == nil {
		t.Error("the same id was claimed twice")
	}
	if s, err := Sweep(runs, false); err != nil || len(s) != 0 {
		t.Errorf("a record whose keeper lives was swept: %v %v", s, err)
	}
	c.lock.Close() // the keeper dies
	s, err := Sweep(runs, true)
	if err != nil || len(s) != 1 || len(s[0].Left) < left {
		t.Fatalf("look found %+v, %v", s, err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal("looking removed something")
	}
	if s, err := Sweep(runs, false); err != nil || len(s) != 1 {
		t.Fatalf("sweep found %+v, %v", s, err)
	}
	for _, p := range []string{dir, runs} {
		if _, err := os.Stat(p); !os.IsNotExist(err) {
			t.Errorf("%s is still there", p)
		}
	}
}

func TestRelease(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	c, err := claimRun(runs, record{ID: testID})
	if err != nil {
		t.Fatal(err)
	}
	c.release()
	if _, err := os.Stat(runs); !os.IsNotExist(err) {
		t.Error("an empty runs directory stays")
	}
}

// A record that lies ends nobody else's processes and removes nobody else's
// directories.
func TestSweepLies(t *testing.T) {
	for _, tt := range []struct{ name, record string }{
		{"other group", `{"id":"` + testID + `","cgroup":{"Dirs":{"memory":"OTHER"}}}`},
		{"other id", `{"id":"sother","cgroup":{"Dirs":{"memory":"OTHER"}}}`},
		{"a folder of the right name that is no cgroup", `{"id":"` + testID + `","cgroup":{"Dirs":{"memory":"OTHER/berm-` + testID + `"}}}`},
		{"not json", `{{{`},
		{"empty", ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := t.TempDir()
			other := filepath.Join(t.TempDir(), "somebody")
			os.MkdirAll(filepath.Join(other, "berm-"+testID), 0o755)
			dir := filepath.Join(runs, testID)
			os.Mkdir(dir, 0o755)
			lie := strings.ReplaceAll(tt.record, "OTHER", other)
			os.WriteFile(filepath.Join(dir, ownerFile), []byte(lie), 0o600)
			if _, err := Sweep(runs, false); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(other, "berm-"+testID)); err != nil {
				t.Error("a directory of somebody else is gone")
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Error("the damaged record stays for ever")
			}
		})
	}
}

func TestSweepLeavesStrangers(t *testing.T) {
	runs := t.TempDir()
	for _, d := range []string{"not-an-id", ".new-" + testID} {
		if err := os.Mkdir(filepath.Join(runs, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := Sweep(runs, false); err != nil || len(s) != 0 {
		t.Errorf("swept %v, %v", s, err)
	}
	old := time.Now().Add(-time.Minute)
	os.Chtimes(filepath.Join(runs, ".new-"+testID), old, old)
	if s, err := Sweep(runs, false); err != nil || len(s) != 1 {
		t.Errorf("old wreckage: swept %v, %v", s, err)
	}
	if s, err := Sweep(filepath.Join(runs, "none"), false); err != nil || len(s) != 0 {
		t.Errorf("no directory: %v, %v", s, err)
	}
}

// Keepers come and go at the same time, and the last to go takes runs away.
func TestClaimWhileOthersEnd(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	done := make(chan error, 8)
	for g := range 8 {
		go func() {
			for i := range 50 {
				c, err := claimRun(runs, record{ID: fmt.Sprintf("s%025d", g*1000+i)})
				if err != nil {
					done <- err
					return
				}
				c.release()
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A pipe or a link in the place of a record is not waited for and not followed.
func TestSweepStrangeRecords(t *testing.T) {
	runs := t.TempDir()
	outside := filepath.Join(t.TempDir(), "owner.json")
	os.WriteFile(outside, []byte(`{"id":"`+testID+`"}`), 0o600)
	for i, put := range []func(path string) error{
		func(p string) error { return syscall.Mkfifo(p, 0o600) },
		func(p string) error { return os.Symlink(outside, p) },
		func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		dir := filepath.Join(runs, fmt.Sprintf("s%025d", i))
		os.Mkdir(dir, 0o700)
		if err := put(filepath.Join(dir, ownerFile)); err != nil {
			t.Fatal(err)
		}
	}
	done := time.After(5 * time.Second)
	swept := make(chan struct{})
	go func() { Sweep(runs, false); close(swept) }()
	select {
	case <-swept:
	case <-done:
		t.Fatal("the sweep hangs")
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}
