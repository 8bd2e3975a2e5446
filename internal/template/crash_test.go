package template

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/image"
)

// crashing makes templates one after the other, until it is killed.
func crashing(dir string) {
	s := New(image.Open(dir), Options{Maker: "/proc/self/exe", MostLayers: 4})
	ctx := context.Background()
	var below *image.Root
	for i := 0; ; i++ {
		archive := archive(nil, file{name: fmt.Sprintf("f%d", i), content: strings.Repeat(fmt.Sprint(i), 1<<18)})
		job := Job{Kind: JobLayer, Below: below, Key: fmt.Sprint("step ", i)}
		if i%3 == 0 {
			job = Job{Kind: JobImport, Name: "t", Replace: true}
		}
		made, err := s.Do(ctx, job, bytes.NewReader(archive), nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		below = &made.Root
		if i%4 == 3 {
			below = nil
			if err := s.Remove(ctx, "t"); err != nil && !strings.Contains(err.Error(), "no template") {
				fmt.Println(err)
				return
			}
		}
		if i == 7 {
			fmt.Println("done")
			return
		}
	}
}

// TestCrash: killed at any moment, the next collection leaves what is whole and
// nothing else.
func TestCrash(t *testing.T) {
	if realMaker() == "" {
		t.Skip("needs a static test binary (CGO_ENABLED=0): a filter reaches all threads only of one")
	}
	run := func(dir string, kill time.Duration) (string, time.Duration) {
		var out bytes.Buffer
		c := exec.Command("/proc/self/exe", "crash", dir)
		c.Stdout, c.Stderr = &out, &out
		began := time.Now()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if kill > 0 {
			time.AfterFunc(kill, func() { c.Process.Kill() })
		}
		c.Wait()
		return out.String(), time.Since(began)
	}
	said, took := run(t.TempDir(), 0)
	if said != "done\n" {
		t.Fatal(said)
	}
	const times = 24
	for i := range times {
		dir := t.TempDir()
		said, _ := run(dir, took*time.Duration(i+1)/times)
		if said != "" && said != "done\n" {
			t.Errorf("killed at %d/%d: %s", i+1, times, said)
		}
		s := New(image.Open(dir), Options{Maker: "/proc/self/exe"})
		w := world{s, s, dir}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) { // a maker hears of it in a moment
			if err := s.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			left, _ := filepath.Glob(filepath.Join(dir, "tmp", "*"))
			pins, _ := filepath.Glob(filepath.Join(dir, dirPins, "*"))
			if len(left)+len(pins) == 0 || time.Now().After(end) {
				break
			}
		}
		w.clean(t)
		held := map[string]bool{}
		for _, kind := range []string{dirNames, dirKeys} {
			each(s, kind, func(path string, _ time.Time, r record) {
				if hold(held, r.Root); !s.whole(r.Root) {
					t.Errorf("killed at %d/%d: %s names what is not there", i+1, times, path)
				}
			})
		}
		if n := w.images(t); n != len(held) {
			t.Errorf("killed at %d/%d: %d images, %d of them held", i+1, times, n, len(held))
		}
		if _, err := s.Do(t.Context(), Job{Kind: JobImport, Name: "t", Replace: true}, bytes.NewReader(archive(t, file{name: "x"})), nil); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"*/.new-*", "locks/*"} {
			if left, _ := filepath.Glob(filepath.Join(dir, name)); len(left) > 1 {
				t.Errorf("left: %v", left)
			}
		}
		os.RemoveAll(dir)
	}
}
