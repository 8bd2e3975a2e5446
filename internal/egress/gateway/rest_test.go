package gateway

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestRest: memory is given back once after each time that something was open.
func TestRest(t *testing.T) {
	var r rest
	times := 0
	look := func(busy bool, n, want int) {
		t.Helper()
		for range n {
			if r.over(busy) {
				times++
			}
		}
		if times != want {
			t.Errorf("given back %d times, want %d", times, want)
		}
	}
	look(false, 100, 0) // nothing ever was
	look(true, 100, 0)
	look(false, restTime-1, 0)
	look(true, 1, 0)
	look(false, restTime-1, 0)
	look(false, 1, 1)
	look(false, 100, 1)
	look(true, 1, 1)
	look(false, 100, 2)
}

// TestBusy: what is open, and what came and went between two looks, counts.
func TestBusy(t *testing.T) {
	w := newWorld(t, nil)
	g := &Gateway{stack: w.g.stack} // its own looks
	if g.busy() {
		t.Error("a fresh one is busy")
	}
	g.flows.Add(1)
	if !g.busy() || g.busy() {
		t.Error("a connection that came and went counts once")
	}
	g.conns.Add(1)
	for range 2 {
		if !g.busy() {
			t.Error("an open connection is not busy")
		}
	}
}

// resident is a process's memory, in KiB.
func resident(t *testing.T, pid int) (kb int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		fmt.Sscanf(line, "RssAnon: %d kB", &kb)
	}
	return kb
}

// TestProcessRest: under its filter, too, a process shrinks after a burst.
func TestProcessRest(t *testing.T) {
	if testing.Short() {
		t.Skip("a process of its own")
	}
	w, cmd, _ := processAs(t, "calm")
	to := at(server4, 9000)
	w.listen(to, echo)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	done := make(chan error)
	for range 8 {
		go func() {
			c, err := w.dial(to)
			if err == nil {
				go func() {
					c.Write(data)
					c.CloseWrite()
				}()
				_, err = io.Copy(io.Discard, c)
				c.Close()
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	most, kb := resident(t, cmd.Process.Pid), 0
	for end := time.Now().Add(4 * patienceInTests); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if kb = resident(t, cmd.Process.Pid); kb < most*3/4 {
			t.Logf("%d KiB after the burst, %d at rest", most, kb)
			return
		}
	}
	t.Errorf("%d KiB after a burst, and %d when at rest", most, kb)
}
