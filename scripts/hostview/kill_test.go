package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKill kills berm run at random moments from the first millisecond on.
// With no further command, nothing of the sandbox may be left two seconds later.
func TestKill(t *testing.T) {
	bin, state := realBerm(t)
	n := 20
	if proof {
		n = 100
	}
	began := time.Now()
	if out, err := exec.Command(bin, "run", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	whole := time.Since(began) // half of the kills hit the start, half a running sandbox
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, a run of true takes %v", seed, whole)
	random := rand.New(rand.NewPCG(seed, 0))
	w := mustBegin(t, state)
	for i := range n {
		after := time.Millisecond + time.Duration(random.Int64N(int64(2*whole)))
		ok := t.Run(fmt.Sprintf("%03d", i), func(t *testing.T) {
			t.Logf("killed after %v", after)
			cmd := started(t, bin, "run", "--", "/bin/sh", "-c", "setsid sleep 60 & dd if=/dev/zero of=/tmp/f bs=1M count=4; sleep 60")
			time.Sleep(after)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			mustSettle(t, w)
		})
		if !ok {
			t.FailNow() // the next kills would only see the same remains
		}
	}
}

// TestKillKeeper kills the process that is every sandbox's parent: no process
// may outlive it, and the next command cleans the rest.
func TestKillKeeper(t *testing.T) {
	bin, state := realBerm(t)
	w := mustBegin(t, state)
	cmd := started(t, bin, "run", "--", "sleep", "60")
	keeper := waitForKeeper(t, cmd.Process.Pid)
	time.Sleep(300 * time.Millisecond) // into the running sandbox
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("berm run reports success though its keeper was killed")
	}
	end := time.Now().Add(grace)
	for {
		now, err := w.look()
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(now["processes"], w.before["processes"]) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("processes outlive the keeper:\n%s", strings.Join(now["processes"], "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
	if out, err := exec.Command(bin, "run", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("the run after: %v\n%s", err, out)
	}
	mustSettle(t, w)
}

// waitForKeeper finds the keeper among the descendants of a berm.
func waitForKeeper(t *testing.T, berm int) int {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		procs, err := descendantsOf(berm)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range procs {
			if args := strings.Fields(p.cmdline); len(args) > 1 && args[1] == "keeper" {
				return p.pid
			}
		}
	}
	t.Fatal("no descendant of berm run is `berm keeper`")
	return 0
}
