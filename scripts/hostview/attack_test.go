package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAttackEnded ends `berm attack` in the middle: of cases of each kind, with
// a signal that it can take as a request and with one that it cannot. With no
// further command, a few seconds later nothing of it is on the host: nothing
// that Berm leaves nowhere else either, and nothing that the suite planted.
func TestAttackEnded(t *testing.T) {
	bin, state := realBerm(t)
	for _, kind := range []struct {
		name string
		args []string
		far  bool // it attacks from network namespaces of its own
	}{
		{"plain cases", []string{"--only", "escape,credentials,exhaustion"}, false},
		{"no sandbox at all", []string{"--against", "env {}", "--only", "exhaustion-endless,exhaustion-fork-bomb,exhaustion-thread-bomb,exhaustion-zombies,escape-outlive"}, false},
		{"cases on the wire", []string{"--only", "egress-churn,egress-half-open,egress-icmp,egress-raw-silent,egress-rebind,egress-ftp"}, true},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
			t.Run(kind.name+", "+sig.String(), func(t *testing.T) { attackEnded(t, bin, state, kind.args, kind.far, sig) })
		}
	}
}

func attackEnded(t *testing.T, bin, state string, args []string, far bool, sig syscall.Signal) {
	w := mustBegin(t, state)
	// What it plants in these is seen without knowing what it plants.
	own := map[string]string{"HOME": t.TempDir(), "TMPDIR": t.TempDir(), "PWD": t.TempDir()}
	cmd := exec.Command(bin, append([]string{"attack"}, args...)...)
	cmd.Dir = own["PWD"]
	cmd.Env = os.Environ()
	for name, dir := range own {
		cmd.Env = append(cmd.Env, name+"="+dir)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	nets, planted := inTheMiddle(t, cmd.Process.Pid, own["TMPDIR"], far)
	time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was over before the signal came")
	}
	var left []string
	for end := time.Now().Add(grace); ; time.Sleep(50 * time.Millisecond) {
		reap()
		if left = remains(own, planted, nets); len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	if len(left) > 0 {
		said, _ := os.ReadFile(out.Name())
		t.Errorf("left behind:\n%s\nit said:\n%s", strings.Join(left, "\n"), said)
	}
	mustSettle(t, w)
	t.Logf("%d planted files, %d network namespaces", len(planted), len(nets))
}

// inTheMiddle waits until cases run, and says in which networks, and what was
// planted where everybody plants.
func inTheMiddle(t *testing.T, pid int, tmp string, far bool) (nets, planted []string) {
	t.Helper()
	ours, _ := os.Readlink("/proc/self/ns/net")
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		procs, err := descendantsOf(pid)
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, p := range procs {
			if net, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.pid)); err == nil && net != ours && !slices.Contains(nets, net) {
				nets = append(nets, net)
			}
			if strings.HasPrefix(p.comm, "berm-sandbox") || p.comm == "python3" { // the latter where there is no sandbox
				running++
			}
		}
		lists, _ := filepath.Glob(tmp + "/berm-canary-*/planted")
		for _, list := range lists {
			data, _ := os.ReadFile(list)
			for line := range strings.Lines(string(data)) {
				_, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
				planted = append(planted, path)
			}
		}
		if running > 0 && (far && len(nets) > 3 || !far && len(planted) > 20) {
			return nets, planted
		}
		planted = nil
	}
	t.Fatal("no case has begun for a minute")
	return nil, nil
}

// remains are what is still there of what was planted, and who is in a network
// that was made for it.
func remains(own map[string]string, planted, nets []string) (out []string) {
	for name, dir := range own {
		ents, _ := os.ReadDir(dir)
		for _, e := range ents {
			out = append(out, "in "+name+": "+e.Name())
		}
	}
	for _, path := range planted {
		if fi, err := os.Lstat(path); err == nil {
			out = append(out, fmt.Sprintf("%s: %v", path, fi.Mode()))
		}
		if word := filepath.Base(path); strings.HasPrefix(word, "berm-canary-") {
			found, _ := filepath.Glob("/tmp/*" + word + "*")
			out = append(out, found...)
			keys, _ := os.ReadFile("/proc/keys")
			if strings.Contains(string(keys), word) {
				out = append(out, "a key "+word)
			}
		}
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, l := range links {
		if net, err := os.Readlink(l); err == nil && slices.Contains(nets, net) {
			out = append(out, "a network: "+l)
		}
	}
	return out
}
