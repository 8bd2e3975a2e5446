package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// A served is a `berm serve` with a state directory of its own, and an HTTP
// client that shares no code with Berm.
type served struct {
	t          *testing.T
	bin, state string
	args       []string

	mu    sync.Mutex
	url   string
	token string
	cmd   *exec.Cmd
	log   *bytes.Buffer
	http  *http.Client
}

// serve starts a daemon. Its templates and programs are those of the shared
// state directory, under second names, so that nothing is built again.
func serve(t *testing.T, args ...string) *served {
	t.Helper()
	bin, shared := binary(t)
	s := &served{t: t, bin: bin, state: t.TempDir(), args: args}
	if err := os.Chmod(s.state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"templates", "runtimes"} {
		err := filepath.WalkDir(filepath.Join(shared, dir), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			rel, _ := filepath.Rel(shared, path)
			to := filepath.Join(s.state, rel)
			switch {
			case err != nil:
				return err
			case d.IsDir():
				return os.MkdirAll(to, 0o700)
			case d.Type().IsRegular():
				return os.Link(path, to)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	t.Cleanup(s.clean)
	return s
}

// start starts it (again) and waits until it says that it is ready.
func (s *served) start() {
	s.t.Helper()
	s.launch(s.bin)
}

func (s *served) launch(bin string) {
	s.t.Helper()
	cmd := exec.Command(bin, append([]string{"serve", "--state", s.state, "--listen", "127.0.0.1:0"}, s.args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	log := &bytes.Buffer{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	line := make(chan string, 1)
	go func() {
		l, _ := bufio.NewReader(out).ReadString('\n')
		line <- l
		io.Copy(io.Discard, out)
	}()
	select {
	case l := <-line:
		url, ok := strings.CutPrefix(strings.TrimSpace(l), "berm: ready ")
		if !ok {
			cmd.Process.Kill()
			cmd.Wait()
			s.t.Fatalf("the daemon did not get ready: %q\n%s", l, log)
		}
		token, err := os.ReadFile(filepath.Join(s.state, "token"))
		if err != nil {
			s.t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cmd, s.log, s.url, s.token = cmd, log, url, strings.TrimSpace(string(token))
		s.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: time.Minute}
	case <-time.After(60 * time.Second):
		cmd.Process.Kill()
		cmd.Wait()
		s.t.Fatalf("the daemon is not ready after a minute\n%s", log)
	}
}

// kill9 is the end without a word.
func (s *served) kill9() {
	s.cmd.Process.Signal(syscall.SIGKILL)
	s.cmd.Wait()
	s.http.CloseIdleConnections()
}

// stop is the orderly end.
func (s *served) stop() error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(30*time.Second, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	return s.cmd.Wait()
}

// clean ends the daemon and its keeper, whatever the test did.
func (s *served) clean() {
	if s.cmd.ProcessState == nil {
		if err := s.stop(); err != nil {
			s.t.Errorf("the daemon did not stop: %v\n%s", err, s.log)
		}
	}
	if s.t.Failed() {
		s.t.Logf("the daemon's log:\n%s", tail(s.log.String(), 4000))
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		pids := s.processes("")
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			for pid, args := range pids {
				s.t.Errorf("still there: %d %s", pid, args)
				syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}

// processes are those of this state directory, seen from outside: by their
// command line, or as children of the keeper.
func (s *served) processes(kind string) map[int]string {
	out := map[int]string{}
	ents, _ := os.ReadDir("/proc")
	keepers := map[int]bool{}
	parents := map[int]int{}
	args := map[int]string{}
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		args[pid] = strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
		st, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if i := bytes.LastIndexByte(st, ')'); i > 0 {
			f := strings.Fields(string(st[i+1:]))
			if len(f) > 1 && f[0] != "Z" {
				parents[pid], _ = strconv.Atoi(f[1])
			}
		}
		if strings.Contains(args[pid], s.state) {
			if strings.Contains(args[pid], " keeper ") || strings.HasPrefix(args[pid], "berm keeper") {
				keepers[pid] = true
				if kind == "" || kind == "keeper" {
					out[pid] = args[pid]
				}
			} else if kind == "" {
				out[pid] = args[pid]
			}
		}
	}
	for pid, parent := range parents {
		if keepers[parent] && (kind == "" || kind == "sandbox") {
			out[pid] = args[pid]
		}
	}
	delete(out, os.Getpid())
	return out
}

// memory is a line of the daemon's status, in bytes.
func (s *served) memory(line string) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(b), line+":")
	kb, _ := strconv.ParseInt(strings.Fields(after + " 0")[0], 10, 64)
	return kb << 10
}

// do is one request with the admin token.
func (s *served) do(method, path string, body any) (int, []byte, error) {
	s.mu.Lock()
	url, token, c := s.url, s.token, s.http
	s.mu.Unlock()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			return 0, nil, err
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequest(method, url+path, r)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

// must does one request that has to answer status, and decodes the answer.
func (s *served) must(status int, method, path string, body, out any) {
	s.t.Helper()
	got, b, err := s.do(method, path, body)
	if err != nil || got != status {
		s.t.Fatalf("%s %s: %d %v %s, want %d", method, path, got, err, b, status)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			s.t.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
}

func (s *served) create(req api.CreateRequest) string {
	s.t.Helper()
	var sb api.Sandbox
	s.must(201, "POST", "/v1/sandboxes", req, &sb)
	return sb.SandboxID
}

func (s *served) exec(id, cmd string) api.ExecAnswer {
	s.t.Helper()
	var a api.ExecAnswer
	s.must(200, "POST", "/v1/sandboxes/"+id+"/exec", api.ExecRequest{Cmd: cmd}, &a)
	return a
}

// TestServe: files and their modes, the rights of the daemon, the one lock, what
// is open without a token, the four operations, and an orderly stop.
func TestServe(t *testing.T) {
	s := serve(t)
	mode := func(name string) string {
		fi, err := os.Stat(filepath.Join(s.state, name))
		if err != nil {
			return err.Error()
		}
		return fi.Mode().Perm().String()
	}
	for _, name := range []string{"token", "berm.sock"} {
		if m := mode(name); m != "-rw-------" {
			t.Errorf("%s has mode %s", name, m)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(s.state, "url")); strings.TrimSpace(string(b)) != s.url {
		t.Errorf("DIR/url is %q, want %q", b, s.url)
	}
	// Only the keeper stays root.
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "Seccomp:\t2"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the daemon's status has no %q", want)
		}
	}
	if strings.Contains(string(status), "Uid:\t0\t") {
		t.Error("the daemon is root")
	}
	second := exec.Command(s.bin, "serve", "--state", s.state, "--listen", "127.0.0.1:0")
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "already running") {
		t.Errorf("a second daemon: %v %s", err, out)
	}
	for _, path := range []string{"/v1/sandboxes", "/v1/version", "/openapi.yaml", "/metrics", "/v1/events"} {
		resp, err := http.Get(s.url + path)
		if err != nil || resp.StatusCode != 401 {
			t.Errorf("%s without a token: %v %v", path, resp, err)
		}
	}
	if resp, err := http.Get(s.url + "/healthz"); err != nil || resp.StatusCode != 200 {
		t.Errorf("healthz: %v %v", resp, err)
	}

	id := s.create(api.CreateRequest{Template: "code-interpreter", TTLSeconds: 120, Metadata: map[string]string{"run_id": "r1"}})
	s.must(200, "PUT", "/v1/sandboxes/"+id+"/fs?path=/run/step.py", "print(6*7)", nil)
	if a := s.exec(id, "python3 /run/step.py"); a.Stdout != "42\n" || a.ExitCode != 0 || a.Ending != api.EndExit {
		t.Errorf("exec answered %+v", a)
	}
	s.must(204, "DELETE", "/v1/sandboxes/"+id, nil, nil)
	s.must(204, "DELETE", "/v1/sandboxes/"+id, nil, nil)
	if n := len(s.processes("sandbox")); n != 0 {
		t.Errorf("%d sandbox processes are left", n)
	}
	s.create(api.CreateRequest{})
	if err := s.stop(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.processes(""); len(left) != 0 {
		t.Errorf("after an orderly stop: %v", left)
	}
}
