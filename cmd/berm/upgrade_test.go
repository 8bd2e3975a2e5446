package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// otherBuild makes a berm of another build: one with a
// sandbox program of another digest, which is the same one with a tail.
func otherBuild(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	in, err := os.Open("blobs/sandbox.gz")
	if err != nil {
		t.Skip("needs the built programs: make build")
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	program, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	program = append(program, "another build"...)
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	w.Write(program)
	w.Close()
	sum := sha256.Sum256(program)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name, b := range map[string][]byte{"sandbox.gz": packed.Bytes(), "sandbox.sha256": []byte(hex.EncodeToString(sum[:]) + "\n")} {
		replace[filepath.Join(here, "blobs", name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": replace})
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "berm")
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-ldflags", "-s -w", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build another berm: %v\n%s", err, out)
	}
	return bin
}

// gatewayOf has a sandbox look for a name, which is denied, and says which
// runtime the gateway that did it is of.
func (s *served) gatewayOf(id string) string {
	s.t.Helper()
	if a := s.exec(id, "getent ahosts nowhere.test"); a.ExitCode != 2 { // getent: no such name
		s.t.Errorf("a name that is not allowed: %+v", a)
	}
	programs, _ := filepath.Glob(filepath.Join(s.state, "runtimes", "*", "sandbox"))
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		name, _ := os.ReadFile(p + "/cmdline")
		group, _ := os.ReadFile(p + "/cgroup")
		if !bytes.HasPrefix(name, []byte("berm-gateway\x00")) || !bytes.Contains(group, []byte(id)) {
			continue
		}
		exe, err := os.Stat(p + "/exe")
		for _, f := range programs {
			if fi, e := os.Stat(f); err == nil && e == nil && os.SameFile(exe, fi) {
				return f
			}
		}
	}
	s.t.Fatalf("no gateway of %s runs one of %q", id, programs)
	return ""
}

// TestDaemonUpgrade: a daemon of another build takes over the sandboxes of the
// first, uses them, and starts its own with its own program beside them.
func TestDaemonUpgrade(t *testing.T) {
	s := serve(t)
	other := otherBuild(t)
	old := s.create(api.CreateRequest{TTLSeconds: 600})
	s.exec(old, "echo kept > /workspace/file")
	linked := s.create(api.CreateRequest{TTLSeconds: 600, Egress: json.RawMessage("[]")})
	first := s.gatewayOf(linked)
	var x api.Exec
	s.must(202, "POST", "/v1/sandboxes/"+old+"/exec", api.ExecRequest{Cmd: "echo before; sleep 2; echo after", Detach: true}, &x)
	s.kill9()
	s.launch(other)
	runtimes, _ := os.ReadDir(filepath.Join(s.state, "runtimes"))
	programs := 0
	for _, r := range runtimes {
		if _, err := os.Stat(filepath.Join(s.state, "runtimes", r.Name(), "sandbox")); err == nil {
			programs++
		}
	}
	if programs != 2 {
		t.Errorf("%d sandbox programs are in the state directory, want the first build's and the second's", programs)
	}
	if a := s.exec(old, "cat /workspace/file"); a.Stdout != "kept\n" {
		t.Errorf("in a sandbox of the first build: %+v", a)
	}
	if second := s.gatewayOf(linked); second == first {
		t.Errorf("the gateway of a sandbox of the first build still runs %q, and its broker is of the second", second)
	}
	fresh := s.create(api.CreateRequest{})
	if a := s.exec(fresh, "echo fresh"); a.Stdout != "fresh\n" {
		t.Errorf("in a sandbox of the second build: %+v", a)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		s.must(200, "GET", "/v1/sandboxes/"+old+"/execs/"+x.ExecID, nil, &x)
		if x.State == api.ExecEnded || time.Now().After(end) {
			break
		}
	}
	if x.Result == nil || x.Result.Ending != api.EndExit {
		t.Errorf("a command that the first build started: %+v", x)
	}
	_, b, err := s.do("GET", "/v1/sandboxes/"+old+"/logs", nil)
	if err != nil || !strings.Contains(string(b), "before") || !strings.Contains(string(b), "after") {
		t.Errorf("its output: %v %q", err, b)
	}
	// And back: the first build takes over what the second started.
	s.kill9()
	s.start()
	if a := s.exec(fresh, "echo still"); a.Stdout != "still\n" {
		t.Errorf("back at the first build: %+v", a)
	}
	for _, id := range []string{old, fresh} {
		s.must(204, "DELETE", "/v1/sandboxes/"+id, nil, nil)
	}
}
