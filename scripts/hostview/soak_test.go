package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSoak runs sandboxes one after the other, eight at a time: none may fail,
// nothing may be left, and the host's memory must be as before.
func TestSoak(t *testing.T) {
	bin, state := realBerm(t)
	n := 100
	if proof {
		n = 1000
	}
	w, freeBefore := mustBegin(t, state), available(t)
	todo := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range todo {
				if err := soakRun(bin, i); err != nil {
					t.Errorf("run %d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	wg.Wait()
	mustSettle(t, w)
	// The kernel gives memory of ended groups back at its own pace.
	const most = 300 << 20
	free := available(t)
	for end := time.Now().Add(10 * time.Second); freeBefore-free > most && time.Now().Before(end); free = available(t) {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d runs; memory available before %d MiB, after %d MiB", n, freeBefore>>20, free>>20)
	if lost := freeBefore - free; lost > most {
		t.Errorf("the host has %d MiB less than before", lost>>20)
	}
}

// soakRun is one run: its answer must be its own.
func soakRun(bin string, i int) error {
	cmd := exec.Command(bin, "run", "--json", "--tag", fmt.Sprintf("soak=%d", i), "--", "/bin/sh", "-c", fmt.Sprintf("echo %d > f; cat f", i))
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var answer struct {
		Stdout string `json:"stdout"`
		Ending string `json:"ending"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if want := fmt.Sprintf("%d\n", i); answer.Stdout != want || answer.Ending != "exit" {
		return fmt.Errorf("stdout %q, ending %q", answer.Stdout, answer.Ending)
	}
	return nil
}

// available is the memory that the host could give out now.
func available(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no MemAvailable in /proc/meminfo")
	return 0
}
