package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// sandboxed runs the agent as the first process of a gVisor sandbox: the runsc
// named by BERM_TEST_RUNSC, this machine's files read-only below an overlay, in
// cgroups that hold whatever the tests let loose.
func sandboxed(t *testing.T) *guest.Client {
	t.Helper()
	runsc := os.Getenv("BERM_TEST_RUNSC")
	if runsc == "" {
		t.Skip("needs a gVisor: set BERM_TEST_RUNSC to a runsc")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "berm-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "github.com/bermhq/berm/cmd/berm-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	caps := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN"}
	spec := map[string]any{
		"ociVersion": "1.0.0", "hostname": "berm",
		"root": map[string]any{"path": "/", "readonly": false},
		"process": map[string]any{
			"args": []string{bin}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0},
			"capabilities": map[string]any{"bounding": caps, "effective": caps, "permitted": caps},
		},
		"mounts": []any{
			map[string]any{"destination": "/proc", "type": "proc"},
			map[string]any{"destination": "/dev/shm", "type": "tmpfs"},
			map[string]any{"destination": "/mnt", "type": "tmpfs", "options": []string{"mode=1777"}},
		},
	}
	b, _ := json.Marshal(spec)
	os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644)
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	id := "berm-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	global := []string{"--root=" + filepath.Join(dir, "root"), "--network=none", "--ignore-cgroups", "--rootless=false", "--overlay2=root:memory"}
	join := "set -e; "
	for _, c := range cgroups(t, id) {
		join += "echo $$ > " + c + "/cgroup.procs; "
	}
	cmd := exec.Command("sh", append([]string{"-c", join + `exec "$@"`, "sh", runsc}, append(global, "run", "--bundle="+dir, id)...)...)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c := guest.New(ours, guest.Options{})
	t.Cleanup(func() {
		c.Close()
		exec.Command(runsc, append(global, "delete", "--force", id)...).Run()
		cmd.Wait()
	})
	if _, err := c.Hello(ctxFor(t, 30*time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// cgroups makes cgroups that bound tasks and memory, or skips.
func cgroups(t *testing.T, id string) []string {
	t.Helper()
	limits := map[string]string{"/sys/fs/cgroup/pids/" + id + "/pids.max": "2000", "/sys/fs/cgroup/memory/" + id + "/memory.limit_in_bytes": "2g"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		limits = map[string]string{"/sys/fs/cgroup/" + id + "/pids.max": "2000", "/sys/fs/cgroup/" + id + "/memory.max": "2G"}
	}
	var dirs []string
	for file, limit := range limits {
		d := filepath.Dir(file)
		os.Mkdir(d, 0o755)
		t.Cleanup(func() {
			for range 50 {
				if os.Remove(d) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		if err := os.WriteFile(file, []byte(limit), 0o644); err != nil {
			t.Skip("needs cgroups for tasks and memory: ", err)
		}
		dirs = append(dirs, d)
	}
	return dirs
}

func TestGVisor(t *testing.T) {
	c := sandboxed(t)
	ctx := ctxFor(t, 2*time.Minute)
	h, err := c.Hello(ctx)
	if err != nil || h.Boot.PID != 1 || h.Boot.Kernel != "gvisor" || h.Boot.Hostname != "berm" {
		t.Fatalf("%+v, %v", h, err)
	}
	rtt := time.Now()
	for range 20 {
		c.Usage(ctx)
	}
	t.Logf("usage: %v", time.Since(rtt)/20)
	result(t, c, user("warm", "true"), "")
	began := time.Now()
	for i := range 10 {
		result(t, c, user("true"+strconv.Itoa(i), "true"), "")
	}
	t.Logf("exec of true: %v", time.Since(began)/10)
	u, _ := c.Usage(ctx)
	t.Logf("%+v", u)
	if u.Tasks != 0 {
		t.Errorf("an idle guest has %d tasks", u.Tasks)
	}

	t.Run("rights", func(t *testing.T) {
		out, _, _ := result(t, c, user("rights", "sh", "-c", "id -u; grep Cap /proc/self/status | tr '\\n\\t' ' '; ls /proc/self/fd | wc -l"), "")
		if !strings.HasPrefix(out, "1000\n") || strings.Count(out, "0000000000000000") != 4 || !strings.HasSuffix(out, "4\n") {
			t.Errorf("%q", out)
		}
	})
	t.Run("kill", func(t *testing.T) {
		const deep = `setsid sh -c '(setsid sleep 987 &) ; sleep 987' & (sleep 987 &) ; unshare -r setsid sleep 987 & echo ready; sleep 987`
		p, _ := c.Start(ctx, user("tree", "sh", "-c", deep))
		p.Read(ctx)
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		if err := p.Kill(ctx); err != nil {
			t.Error(err)
		}
		t.Logf("kill: %v", time.Since(began))
		drain(t, ctx, p)
		if u, _ := c.Usage(ctx); u.Tasks != 0 {
			t.Errorf("%+v", u)
		}
	})
	t.Run("kill one of two", func(t *testing.T) {
		keep, _ := c.Start(ctx, user("keep", "sh", "-c", "(sleep 987 &); echo ready; sleep 987"))
		keep.Read(ctx)
		p, _ := c.Start(ctx, user("go", "sh", "-c", "i=0; while [ $i -lt 30 ]; do setsid sleep 987 & i=$((i+1)); done; echo ready; sleep 987"))
		p.Read(ctx)
		began := time.Now()
		if err := p.Kill(ctx); err != nil {
			t.Error(err)
		}
		t.Logf("kill of 31: %v", time.Since(began))
		if u, _ := c.Usage(ctx); u.Tasks != 3 {
			t.Errorf("%+v", u)
		}
		keep.Kill(ctx)
		drain(t, ctx, keep)
		drain(t, ctx, p)
	})
	t.Run("background", func(t *testing.T) {
		p, _ := c.Start(ctx, user("bg", "sh", "-c", "setsid sleep 987 & echo x"))
		began := time.Now()
		drain(t, ctx, p)
		if e := p.Exit(); !e.Background || e.Code != 0 {
			t.Errorf("%+v", e)
		}
		t.Logf("exit with background: %v", time.Since(began))
		p.Kill(ctx)
	})
	t.Run("tty", func(t *testing.T) {
		s := user("tty", "sh", "-c", "stty size; read x; stty size; echo got $x; sleep 60")
		s.TTY, s.Rows, s.Cols = true, 33, 77
		p, _ := c.Start(ctx, s)
		seen := ""
		for _, step := range []struct {
			want string
			then func()
		}{
			{"33 77", func() { p.Resize(44, 88); io.WriteString(p, "word\n") }},
			// A shell about to fork keeps a signal to itself: let it.
			{"got word", func() { time.Sleep(200 * time.Millisecond); p.Signal(int(syscall.SIGINT)) }},
		} {
			for !strings.Contains(seen, step.want) {
				_, b, err := p.Read(ctx)
				if err != nil {
					t.Fatalf("waiting for %q after %q: %v, %+v", step.want, seen, err, p.Exit())
				}
				seen += string(b)
			}
			step.then()
		}
		drain(t, ctx, p)
		if e := p.Exit(); !strings.Contains(seen, "44 88") || e.Signal != 2 && e.Code != 130 {
			t.Errorf("%q, %+v", seen, e)
		}
	})
}

// TestGVisorCaps runs into each cap; every load is bounded by itself too.
func TestGVisorCaps(t *testing.T) {
	c := sandboxed(t)
	ctx := ctxFor(t, 2*time.Minute)
	t.Run("processes", func(t *testing.T) {
		const fork = `import os,time
n=0
for i in range(60):
    try:
        if os.fork()==0: time.sleep(%s); os._exit(0)
        n+=1
    except OSError as e:
        print(n, e.errno, flush=True); break
time.sleep(%s)
`
		s := user("short", "python3", "-c", sub(fork, "0.2", "0.1"))
		s.Pids = 20
		out, errs, e := result(t, c, s, "")
		if out != "19 11\n" || e.EndedBy != "" || strings.Join(e.Caps, " ") != "processes" || e.PidsPeak != 20 {
			t.Errorf("%q, %q, %+v", out, errs, e)
		}
		c.Kill(ctx, "short")
		s = user("long", "python3", "-c", sub(fork, "30", "30"))
		s.Pids = 20
		began := time.Now()
		out, errs, e = result(t, c, s, "")
		if out != "19 11\n" || e.EndedBy != "processes" || strings.Join(e.Caps, " ") != "processes" {
			t.Errorf("%q, %q, %+v", out, errs, e)
		}
		t.Logf("at the cap, ended after %v", time.Since(began))
		s = user("below", "python3", "-c", sub(strings.Replace(fork, "60", "10", 1), "0.1", "0.3"))
		s.Pids = 20
		if _, errs, e = result(t, c, s, ""); len(e.Caps) != 0 || e.PidsPeak != 11 {
			t.Errorf("%q, %+v", errs, e)
		}
	})
	t.Run("culprit", func(t *testing.T) {
		calm := user("calm", "sleep", "987")
		calm.Pids, calm.MemoryBytes = 20, 256<<20
		p, _ := c.Start(ctx, calm)
		s := user("bomb", "python3", "-c", "import os,time\ntry:\n  for i in range(60):\n    if os.fork()==0: time.sleep(30)\nexcept OSError: time.sleep(30)")
		s.Pids = 20
		if _, errs, e := result(t, c, s, ""); e.EndedBy != "processes" {
			t.Errorf("%q, %+v", errs, e)
		}
		s = user("hog", "python3", "-c", "b=bytearray(700<<20)\nfor i in range(0,len(b),4096): b[i]=1")
		s.MemoryBytes = 256 << 20
		if _, errs, e := result(t, c, s, ""); e.EndedBy != "memory" {
			t.Errorf("%q, %+v", errs, e)
		}
		if u, _ := c.Usage(ctx); u.Processes != 1 || u.Tasks != 1 {
			t.Errorf("the calm one was ended too: %+v", u)
		}
		p.Kill(ctx)
		drain(t, ctx, p)
		if e := p.Exit(); e.EndedBy != "killed" || strings.Join(e.Caps, " ") != "processes memory" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("threads", func(t *testing.T) {
		const threads = `import threading,time
n=0
try:
    for i in range(60):
        threading.Thread(target=time.sleep,args=(0.3,)).start(); n+=1
except RuntimeError: pass
print(n)
`
		s := user("threads", "python3", "-c", threads)
		s.Pids = 20
		if out, errs, e := result(t, c, s, ""); out != "19\n" || strings.Join(e.Caps, " ") != "processes" {
			t.Errorf("%q, %q, %+v", out, errs, e)
		}
	})
	t.Run("respawn", func(t *testing.T) {
		// Forks at most 300 at a time's distance; each dies soon.
		const respawn = `import os,time
end=time.time()+6; forked=0
while time.time()<end and forked<300:
    try:
        if os.fork()==0: time.sleep(0.3); os._exit(0)
        forked+=1
    except OSError: time.sleep(0.001)
    try:
        while os.waitpid(-1,os.WNOHANG)[0]: pass
    except OSError: pass
print(forked)
`
		s := user("respawn", "python3", "-c", respawn)
		s.Pids = 20
		began := time.Now()
		out, _, e := result(t, c, s, "")
		t.Logf("respawn: %q %+v after %v", out, e, time.Since(began))
		if e.EndedBy != "processes" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("memory", func(t *testing.T) {
		for _, how := range []string{"b=bytearray(700<<20)\nfor i in range(0,len(b),4096): b[i]=1", "l=[]\nfor i in range(700): l.append(b'x'*(1<<20))"} {
			s := user("memory", "sh", "-c", `python3 -c "$1"; echo survived`, "sh", how)
			s.MemoryBytes = 256 << 20
			began := time.Now()
			out, errs, e := result(t, c, s, "")
			t.Logf("%v: %+v", time.Since(began), e)
			if out != "" || e.EndedBy != "memory" || strings.Join(e.Caps, " ") != "memory" {
				t.Errorf("%q, %q, %+v", out, errs, e)
			}
		}
		if out, _, e := result(t, c, user("after", "echo", "alive"), ""); out != "alive\n" || len(e.Caps) != 0 {
			t.Errorf("%q, %+v", out, e)
		}
	})
	t.Run("speed", func(t *testing.T) {
		began := time.Now()
		n := int64(256 << 20)
		if err := c.WriteFile(ctx, "/mnt/big", 0o644, 1000, 1000, io.LimitReader(zeros{}, n)); err != nil {
			t.Fatal(err)
		}
		t.Logf("upload: %.0f MB/s", float64(n)/1e6/time.Since(began).Seconds())
		began = time.Now()
		r, err := c.ReadFile(ctx, "/mnt/big", 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.Copy(io.Discard, r)
		if err != nil || got != n {
			t.Fatal(got, err)
		}
		t.Logf("download: %.0f MB/s", float64(n)/1e6/time.Since(began).Seconds())
		c.Remove(ctx, "/mnt/big", false)
		began = time.Now()
		out := pull(t, ctx, c, user("zero", "head", "-c", strconv.FormatInt(n, 10), "/dev/zero"))
		t.Logf("stdout: %.0f MB/s", float64(out)/1e6/time.Since(began).Seconds())
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func pull(t *testing.T, ctx context.Context, c *guest.Client, s guest.Start) (n int64) {
	p, err := c.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, b, err := p.Read(ctx)
		if err != nil {
			return n
		}
		n += int64(len(b))
	}
}

func sub(s string, args ...string) string {
	for _, a := range args {
		s = strings.Replace(s, "%s", a, 1)
	}
	return s
}
