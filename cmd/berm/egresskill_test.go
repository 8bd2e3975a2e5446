package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack/world"
)

var exampleOnly = json.RawMessage(`[{"allow": "example.test:8080"}]`)

// transfer starts a download that does not end by itself, and waits until it
// has begun. It only listens, without a keepalive, so it learns of its gateway's end
// by the next one. The channel gets its answer.
func transfer(s *served, w *world.World, id, name string) <-chan api.ExecAnswer {
	s.t.Helper()
	out := make(chan api.ExecAnswer, 1)
	go func() {
		var a api.ExecAnswer
		if code, b, err := s.do("POST", "/v1/sandboxes/"+id+"/exec", api.ExecRequest{Cmd: "curl -sS --no-keepalive -o /dev/null http://example.test:8080/drip/" + name}); err != nil || code != 200 || json.Unmarshal(b, &a) != nil {
			a.Ending = fmt.Sprintf("no answer: %d %v", code, err)
		}
		out <- a
	}()
	until(s.t, "the transfer "+name, func() bool {
		g := w.SoFar().Good
		return g["http4 /drip/"+name] || g["http6 /drip/"+name]
	})
	return out
}

// works makes sure that the sandbox reaches what it may, and nothing else.
func works(s *served, w *world.World, id, when string) {
	s.t.Helper()
	var a api.ExecAnswer
	until(s.t, "the next connection "+when, func() bool {
		a = s.exec(id, "curl -fsS -m 20 http://example.test:8080/after; ! curl -fsS -m 20 http://203.0.113.66:8080/ 2>/dev/null")
		return strings.Contains(a.Stdout, "canary example.test")
	})
	if a.ExitCode != 0 {
		s.t.Errorf("%s: what is denied got through: %+v", when, a)
	}
	if seen := w.SoFar(); len(seen.Hits) > 0 {
		s.t.Errorf("%s: the servers saw %v", when, seen.Hits)
	}
}

// TestEgressKill: without its gateway, or the daemon, a sandbox has no network:
// what is open is cut, nothing is opened, and it comes back by itself.
func TestEgressKill(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	s := serve(t)
	id := s.create(api.CreateRequest{Egress: exampleOnly, Limits: api.Limits{TimeoutSeconds: 60}})
	w.Begin(nil)

	done := transfer(s, w, id, "gateway")
	gateways := below("berm-gateway")
	if len(gateways) != 1 {
		t.Fatalf("%d gateways for one sandbox", len(gateways))
	}
	killed := time.Now()
	syscall.Kill(gateways[0], syscall.SIGKILL)
	until(t, "the end of the server's connection", func() bool { return w.Open() == 0 })
	const isReset = 56 // curl: failure in receiving
	if a := <-done; a.ExitCode != isReset || a.Ending != api.EndExit {
		t.Errorf("a transfer whose gateway died: %+v", a)
	}
	heard := time.Since(killed)
	if t.Logf("the guest heard of it after %v", heard.Round(time.Millisecond)); heard > 3*time.Second {
		t.Errorf("the guest heard of its gateway's death after %v", heard)
	}
	works(s, w, id, "after the gateway died")

	// In the background, for a command ends with the daemon that ran it.
	s.exec(id, "setsid sh -c 'curl -sS --no-keepalive -o /dev/null http://example.test:8080/drip/daemon; echo $? >/tmp/daemon' >/dev/null 2>&1 &")
	until(t, "the transfer daemon", func() bool {
		g := w.SoFar().Good
		return g["http4 /drip/daemon"] || g["http6 /drip/daemon"]
	})
	s.kill9()
	until(t, "the end of the server's connection", func() bool { return w.Open() == 0 })
	s.start()
	started := time.Now()
	last := ""
	t.Cleanup(func() { t.Logf("the guest's transfer ended with %q", last) })
	until(t, "the guest hears of its gateway's death", func() bool {
		last = s.exec(id, "cat /tmp/daemon").Stdout
		return last == fmt.Sprintln(isReset)
	})
	t.Logf("the guest heard of it %v after the next daemon was there", time.Since(started).Round(time.Millisecond))
	works(s, w, id, "after the daemon died")
	s.must(204, "DELETE", "/v1/sandboxes/"+id, nil, nil)
	until(t, "the end of the gateway", func() bool { return len(below("berm-gateway")) == 0 })

	bin, _ := binary(t)
	cmd := exec.Command(bin, "run", "--allow", "example.test:8080", "--", "curl", "-sS", "-o", "/dev/null", "http://example.test:8080/drip/worker")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the transfer of a run", func() bool {
		g := w.SoFar().Good
		return g["http4 /drip/worker"] || g["http6 /drip/worker"]
	})
	workers := below("berm-worker")
	for _, pid := range workers {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	until(t, "the end of the server's connection", func() bool { return w.Open() == 0 })
	var exit *exec.ExitError
	if err := cmd.Wait(); len(workers) != 1 || !errors.As(err, &exit) {
		t.Errorf("%d workers; a run whose worker died: %v", len(workers), err)
	}
	until(t, "the end of the run's gateway", func() bool { return len(below("berm-gateway")) == 0 })
	if seen := w.End(); len(seen.Hits) > 0 {
		t.Errorf("the servers saw %v", seen.Hits)
	}
}

// TestEgressLeak: many links and many connections leave nothing.
func TestEgressLeak(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	s := serve(t)
	sandboxes := 50
	if os.Getenv("BERM_PROOF") != "" {
		sandboxes = 1000
	}
	small := api.CreateRequest{Egress: exampleOnly, Limits: api.Limits{MemoryBytes: 128 << 20}}
	var mu sync.Mutex
	var ids []string
	one := func(cmd, want string) {
		var sb api.Sandbox
		code, b, err := s.do("POST", "/v1/sandboxes", small)
		if err != nil || code != 201 || json.Unmarshal(b, &sb) != nil {
			t.Errorf("create: %d %v %s", code, err, b)
			return
		}
		mu.Lock()
		ids = append(ids, sb.SandboxID)
		mu.Unlock()
		var a api.ExecAnswer
		code, b, err = s.do("POST", "/v1/sandboxes/"+sb.SandboxID+"/exec", api.ExecRequest{Cmd: cmd})
		if err != nil || code != 200 || json.Unmarshal(b, &a) != nil || !strings.Contains(a.Stdout, want) {
			t.Errorf("exec: %d %v %s", code, err, b)
		}
		if code, b, err := s.do("DELETE", "/v1/sandboxes/"+sb.SandboxID, nil); err != nil || code != 204 {
			t.Errorf("delete: %d %v %s", code, err, b)
		}
	}
	fds := func(pid int) int {
		ents, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		return len(ents)
	}
	one("curl -fsS -m 10 http://example.test:8080/", "canary")
	// A lease of a uid is an abstract socket, and those of a network namespace
	// are its own: what is counted is this daemon's.
	leases := func() int {
		b, _ := os.ReadFile("/proc/self/net/unix")
		return strings.Count(string(b), "@berm-uid-")
	}
	leased := leases()
	keepers := s.processes("keeper")
	if len(keepers) != 1 {
		t.Fatalf("keepers: %v", keepers)
	}
	before := map[string]int{"the daemon": fds(s.cmd.Process.Pid)}
	pids := map[string]int{"the daemon": s.cmd.Process.Pid}
	for pid := range keepers {
		before["the keeper"], pids["the keeper"] = fds(pid), pid
	}
	began := time.Now()
	all := func(n int, cmd, want string) {
		var wg sync.WaitGroup
		work := make(chan int)
		for range 4 {
			wg.Go(func() {
				for range work {
					one(cmd, want)
				}
			})
		}
		for i := range n {
			work <- i
		}
		close(work)
		wg.Wait()
	}
	const hundred = `python3 -c "
import socket
n = 0
for i in range(100):
    s = socket.create_connection(('example.test', 8080), 20)
    s.sendall(b'GET / HTTP/1.1\r\nHost: example.test\r\n\r\n')
    n += b'canary' in s.recv(4096)
    s.close()
print('reached', n)"`
	all(10, hundred, "reached 100")
	all(sandboxes, "curl -fsS -m 10 http://example.test:8080/", "canary")
	took := time.Since(began)

	var leaks api.LeakList
	s.must(200, "GET", "/v1/doctor/leaks", nil, &leaks)
	for _, l := range leaks.Leaks { // others test on this host, too
		if l.Kind != "cgroup" && strings.Contains(l.ID, s.state) || slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(l.ID, id) }) {
			t.Errorf("a leak: %+v", l)
		}
	}
	if left := below("berm-gateway"); len(left) > 0 {
		t.Errorf("gateways are left: %v", left)
	}
	if n := leases(); n != leased {
		t.Errorf("%d uids were leased, the daemon's among them, and %d are", leased, n)
	}
	if left := s.processes("sandbox"); len(left) != 0 {
		t.Errorf("processes are left: %v", left)
	}
	s.http.CloseIdleConnections()
	for who, pid := range pids {
		until(t, fmt.Sprintf("the end of descriptors of %s, which had %d", who, before[who]), func() bool { return fds(pid) <= before[who]+8 })
	}
	until(t, "the end of the servers' connections", func() bool { return w.Open() == 0 })
	t.Logf("%d connections, %d links, in %v", 1000+sandboxes, 10+sandboxes, took.Round(time.Second))
}
