package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// busy is how much slower than an idle one the machine of a test may be.
const busy = 4

// slowness is by how much this machine is slower than others, as an emulated one
// is: BERM_SLOW.
func slowness() int {
	n, _ := strconv.Atoi(os.Getenv("BERM_SLOW"))
	return max(n, 1)
}

// run is one `berm run --json` and its exit code.
func run(t *testing.T, args ...string) (api.RunReport, int) {
	t.Helper()
	bin, _ := binary(t)
	var out, errs bytes.Buffer
	cmd := exec.Command(bin, append([]string{"run", "--json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	code := 0
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	var r api.RunReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %.300q; stderr %.300q", err, out.Bytes(), errs.Bytes())
	}
	return r, code
}

// slowEndings are the arguments of those cases of TestEndings that run where the
// processor is emulated: the same ends, sooner, and each cap is among them.
var slowEndings = map[string][]string{
	"fork bomb in a shell": {"--timeout", "300s", "--pids", "16", "--", "bash", "-c", ": bomb; f() { f | f & }; f; sleep 60"},
	"heap":                 {"--timeout", "300s", "--memory", "64m", "--", "python3", "-c", "x=open('/dev/zero','rb',0).read(200<<20)"},
	"memory file systems":  {"--timeout", "300s", "--memory", "64m", "--", "sh", "-c", "dd if=/dev/zero of=/dev/shm/a bs=1M count=50; dd if=/dev/zero of=/run/b bs=1M count=100; sleep 60"},
	"a big file":           {"--timeout", "300s", "--disk", "16m", "--", "sh", "-c", "dd if=/dev/zero of=big bs=1M count=32; sleep 1; true"},
	"a flood":              {"--timeout", "300s", "--output-limit", "1k", "--", "yes"},
	"an endless loop":      {"--timeout", "1s", "--", "sh", "-c", "while :; do :; done"},
	"a log of 10 MiB":      {"--timeout", "300s", "--output-limit", "4k", "--", "sh", "-c", "yes | head -c 65536"},
	"a signal":             {"--", "sh", "-c", "kill -TERM $$"},
}

// Every way to use up what a sandbox has, and the word for it. The programs
// are bounded by themselves as well, so that a broken cap cannot hurt the host.
func TestEndings(t *testing.T) {
	python := func(code string) []string { return []string{"--", "python3", "-c", code} }
	for _, tt := range []struct {
		name   string
		args   []string
		ending string
		cap    string
		code   int
		atMost time.Duration // the way to the cap, and two seconds
	}{
		{"fork bomb in a shell", []string{"--", "bash", "-c", ": bomb; f() { f | f & }; f; sleep 20"}, "processes", "processes", 123, 8 * time.Second},
		{"fork bomb of sleepers", []string{"--memory", "1g", "--", "python3", "-c", "import os,time\nfor _ in range(4000):\n  try:\n    if os.fork()==0: time.sleep(60)\n  except OSError: time.sleep(.01)"}, "processes", "processes", 123, 10 * time.Second},
		{"threads", python("import threading,time\nfor _ in range(4000):\n  try: threading.Thread(target=time.sleep,args=(60,),daemon=True).start()\n  except RuntimeError: time.sleep(.01)"), "processes", "processes", 123, 8 * time.Second},
		{"zombies", python("import os,time\nfor _ in range(40000):\n  try:\n    if os.fork()==0: os._exit(0)\n  except OSError: time.sleep(.001)"), "processes", "processes", 123, 10 * time.Second},
		{"heap", python("x=bytearray(2<<30)"), "memory", "memory", 137, 8 * time.Second},
		{"heap, step by step", python("x=[]\nwhile len(x)<500: x.append(b'x'*(4<<20))"), "memory", "memory", 137, 8 * time.Second},
		{"memory file systems", []string{"--memory", "128m", "--", "sh", "-c", "head -c 1G /dev/zero >/dev/shm/a; head -c 1G /dev/zero >/run/b; head -c 1G /dev/zero >/dev/shm/c"}, "memory", "memory", 137, 8 * time.Second},
		{"pipes", []string{"--memory", "128m", "--", "python3", "-c", "import os,fcntl,time\nl=[]\nfor _ in range(4000):\n  r,w=os.pipe(); fcntl.fcntl(w,1031,1<<20); os.set_blocking(w,False); l.append((r,w))\n  try:\n    while os.write(w,b'x'*65536): pass\n  except BlockingIOError: pass\ntime.sleep(30)"}, "memory", "memory", 137, 10 * time.Second},
		{"empty files", []string{"--memory", "64m", "--", "python3", "-c", "import os\nfor i in range(400000): os.close(os.open('f%d'%i,os.O_CREAT|os.O_WRONLY))"}, "memory", "memory", 137, 25 * time.Second},
		{"a big file", []string{"--", "sh", "-c", "head -c 2G /dev/zero >big; sleep .1; true"}, "exit", "disk", 0, 10 * time.Second},
		{"many small files", []string{"--disk", "16m", "--", "python3", "-c", "import time\ntry:\n  for i in range(40000): open('f%d'%i,'w').write('x')\nexcept OSError: time.sleep(.1)"}, "exit", "disk", 0, 15 * time.Second},
		{"a flood", []string{"--", "yes"}, "output", "output", 123, 8 * time.Second},
		{"an endless loop", []string{"--timeout", "1s", "--", "sh", "-c", "while :; do :; done"}, "timeout", "timeout", 124, 3 * time.Second},
		{"asleep, deaf to signals, in a new session", []string{"--timeout", "1s", "--", "python3", "-c", "import os,signal,time\nfor s in range(1,65):\n  try: signal.signal(s,signal.SIG_IGN)\n  except (OSError,ValueError): pass\nif os.fork()==0:\n  os.setsid()\n  os.fork()\ntime.sleep(600)"}, "timeout", "timeout", 124, 3 * time.Second},
		{"a log of 10 MiB", []string{"--", "sh", "-c", "yes | head -c 10485760"}, "exit", "output", 0, 8 * time.Second},
		{"a signal", []string{"--", "sh", "-c", "kill -TERM $$"}, "signal", "", 143, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args, slow := tt.args, slowness()
			if slow > 1 {
				if args = slowEndings[tt.name]; args == nil {
					t.Skip("this machine is emulated (BERM_SLOW): a smaller program reaches the same cap in another case")
				}
			}
			began := time.Now()
			r, code := run(t, args...)
			took := time.Since(began)
			if r.Ending != tt.ending || code != tt.code || r.ExitCode != code {
				t.Errorf("ending %q, exit code %d (%d in the report); want %q, %d\nstderr: %.200q", r.Ending, code, r.ExitCode, tt.ending, tt.code, r.Stderr)
			}
			if tt.cap != "" && !slices.Contains(r.CapsHit, tt.cap) {
				t.Errorf("caps_hit %q lacks %q", r.CapsHit, tt.cap)
			}
			if tt.cap == "" && len(r.CapsHit) > 0 {
				t.Errorf("caps_hit %q, and none was touched", r.CapsHit)
			}
			if took > busy*time.Duration(slow)*tt.atMost {
				t.Errorf("took %v, over %v even for a busy machine", took, tt.atMost)
			}
			if lim := r.Limits.MemoryBytes; r.Usage.MemoryPeakBytes > lim+lim/16 {
				t.Errorf("memory peak %d over the cap %d", r.Usage.MemoryPeakBytes, lim)
			}
		})
	}
}

// An ordinary user without delegated cgroups is refused, and told the ways on;
// with the caps given up by name the run goes through, and says so.
func TestOrdinaryUser(t *testing.T) {
	bin, _ := binary(t)
	const nobody = 64_999 // no account
	dir := t.TempDir()
	for _, d := range []string{dir, dir + "/root"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	for p := dir; p != "/tmp" && len(p) > 1; p = p[:strings.LastIndexByte(p, '/')] {
		os.Chmod(p, 0o755) // the test's folders are closed to others
	}
	as := func(args ...string) (string, int) {
		cmd := exec.Command(bin, append([]string{"--state", dir + "/state", "run", "--template", dir + "/root"}, args...)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := as("--", "/nothing")
	if strings.Contains(out, "user namespaces") {
		t.Skip("this host has no user namespaces for ordinary users")
	}
	if code != 125 || !strings.Contains(out, "cannot enforce") || !strings.Contains(out, "--memory=unlimited") {
		t.Errorf("exit code %d, %q", code, out)
	}
	out, code = as("--memory=unlimited", "--pids=unlimited", "--cpus=unlimited", "--json", "--", "/nothing")
	if code != 127 || !strings.Contains(out, "rootless") {
		t.Errorf("exit code %d, %q", code, out)
	}
}
