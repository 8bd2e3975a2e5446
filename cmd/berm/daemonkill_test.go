package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// A ledger is what the daemon has acknowledged to its clients.
type ledger struct {
	mu      sync.Mutex
	created map[string]bool   // sandboxes
	deleted map[string]bool   // asked to be, and it was acknowledged
	doubt   map[string]bool   // asked to be, and the answer was lost
	execs   map[string]string // exec -> sandbox
	events  map[uint64]string // seq -> id
}

// shortTTL is the time of a sandbox that must end while no daemon lives.
const shortTTL = 3 * time.Second

// TestDaemonKill: kill -9 of the daemon under load, again and again. After each
// one these hold, seen from outside:
//
//  1. Every sandbox whose creation was acknowledged, and whose deletion was not
//     asked for, is there, runs, and is the same one (its program went on).
//  2. Every sandbox whose deletion was acknowledged has ended.
//  3. Every exec whose answer was acknowledged has its start and its end in the
//     log, once each.
//  4. The log verifies against the head that was saved before the kill.
//  5. Sequence numbers have no gap, and no event that a client saw is gone or another.
//  6. The host runs as many sandboxes as the daemon lists: none is lost, none unknown.
//  7. A ttl that passes while no daemon lives ends its sandbox then.
//  8. A stream that a client held goes on at the byte where it broke.
//  9. A command whose caller asked again with its exec id ran once.
func TestDaemonKill(t *testing.T) {
	s := serve(t)
	rounds := 20
	if os.Getenv("BERM_PROOF") != "" {
		rounds = 100
	}
	led := &ledger{created: map[string]bool{}, deleted: map[string]bool{}, doubt: map[string]bool{}, execs: map[string]string{}, events: map[uint64]string{}}

	// Two sandboxes that stay, each with a program that counts.
	var steady []*counter
	for range 2 {
		id := s.create(api.CreateRequest{TTLSeconds: 3600, Persistent: true, Limits: api.Limits{MemoryBytes: 128 << 20}})
		c := &counter{s: s, sandbox: id}
		var x api.Exec
		s.must(202, "POST", "/v1/sandboxes/"+id+"/exec", api.ExecRequest{
			Cmd: "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done", Detach: true, TimeoutSeconds: 3600,
		}, &x)
		c.exec = x.ExecID
		steady = append(steady, c)
		led.created[id] = true
	}
	var down sync.RWMutex // held for writing while a daemon is replaced
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() { led.work(s, &down, stop) })
	}
	load.Go(func() { led.watch(s, &down, stop) })
	for _, c := range steady {
		load.Go(func() { c.follow(&down, stop) })
	}

	for round := range rounds {
		time.Sleep(time.Duration(50+rand.IntN(600)) * time.Millisecond)
		var head api.Head
		s.must(200, "GET", "/v1/audit/head", nil, &head)
		once := api.NewID(api.KindExec)
		twice := make(chan error, 1)
		go func() { // in flight while it is killed
			_, _, err := s.do("POST", "/v1/sandboxes/"+steady[0].sandbox+"/exec", api.ExecRequest{
				ExecID: once, Cmd: "echo x >> /workspace/" + once + "; sleep 0.3",
			})
			twice <- err
		}()
		var short string
		if round%5 == 0 {
			var sb api.Sandbox // on a busy machine its time may be over before it is up
			code, b, err := s.do("POST", "/v1/sandboxes", api.CreateRequest{TTLSeconds: shortTTL.Seconds(), Limits: api.Limits{MemoryBytes: 64 << 20}})
			if err == nil && code == 201 && json.Unmarshal(b, &sb) == nil {
				short = sb.SandboxID
			}
		}
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		down.Lock() // requests that are under way meet the kill; new ones wait
		s.kill9()
		before := len(s.processes("sandbox"))
		if short != "" {
			time.Sleep(shortTTL + 2*time.Second)
			if after := len(s.processes("sandbox")); after >= before {
				t.Errorf("round %d: a ttl passed without a daemon, and %d of %d sandbox processes are there", round, after, before)
			}
		} else {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		}
		s.start()
		led.check(t, s, round, head, short)
		<-twice
		var a api.ExecAnswer
		s.must(200, "POST", "/v1/sandboxes/"+steady[0].sandbox+"/exec", api.ExecRequest{
			ExecID: once, Cmd: "echo x >> /workspace/" + once + "; sleep 0.3",
		}, &a)
		if got := s.exec(steady[0].sandbox, "cat /workspace/"+once); got.Stdout != "x\n" && a.Ending == api.EndExit {
			t.Errorf("round %d: a command asked for twice under one exec id left %q (%+v)", round, got.Stdout, a)
		}
		down.Unlock()
		if t.Failed() {
			break
		}
	}
	close(stop)
	load.Wait()
	for _, c := range steady {
		if c.err != nil || c.next < 50 {
			t.Errorf("a held stream came to %d: %v", c.next, c.err)
		}
	}
	t.Logf("%d rounds: %d sandboxes created, %d deleted, %d execs, %d events, streams at %d and %d",
		rounds, len(led.created), len(led.deleted), len(led.execs), len(led.events), steady[0].next, steady[1].next)
}

// up waits while a daemon is being replaced.
func up(down *sync.RWMutex) {
	down.RLock()
	defer down.RUnlock()
}

// work creates, uses and deletes, and notes what was acknowledged.
func (l *ledger) work(s *served, down *sync.RWMutex, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		up(down)
		var sb api.Sandbox
		code, b, err := s.do("POST", "/v1/sandboxes", api.CreateRequest{TTLSeconds: 600, Limits: api.Limits{MemoryBytes: 64 << 20, Pids: 32}})
		if err != nil || code != 201 || json.Unmarshal(b, &sb) != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		id := sb.SandboxID
		l.mu.Lock()
		l.created[id] = true
		l.mu.Unlock()
		for range 3 {
			var a api.ExecAnswer
			code, b, err := s.do("POST", "/v1/sandboxes/"+id+"/exec", api.ExecRequest{Args: []string{"/bin/true"}})
			if err == nil && code == 200 && json.Unmarshal(b, &a) == nil {
				l.mu.Lock()
				l.execs[a.ExecID] = id
				l.mu.Unlock()
			}
		}
		l.mu.Lock()
		l.doubt[id] = true
		l.mu.Unlock()
		code, _, err = s.do("DELETE", "/v1/sandboxes/"+id, nil)
		if err == nil && code == 204 {
			l.mu.Lock()
			l.deleted[id] = true
			l.mu.Unlock()
		}
	}
}

// watch follows the log like any client, and remembers what it saw.
func (l *ledger) watch(s *served, down *sync.RWMutex, stop <-chan struct{}) {
	after := uint64(0)
	for {
		select {
		case <-stop:
			return
		default:
		}
		up(down)
		var list api.EventList
		code, b, err := s.do("GET", fmt.Sprintf("/v1/events?after=%d&wait=1", after), nil)
		if err != nil || code != 200 || json.Unmarshal(b, &list) != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		l.mu.Lock()
		for _, e := range list.Events {
			l.events[e.Seq] = e.ID
			after = max(after, e.Seq)
		}
		l.mu.Unlock()
	}
}

func (l *ledger) check(t *testing.T, s *served, round int, head api.Head, short string) {
	t.Helper()
	var list []api.Sandbox
	s.must(200, "GET", "/v1/sandboxes?limit=1000", nil, &list)
	live := map[string]api.Sandbox{}
	for _, sb := range list {
		live[sb.SandboxID] = sb
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.created {
		sb, ok := live[id]
		if !l.doubt[id] && (!ok || sb.State != "running") {
			t.Errorf("round %d: sandbox %s was acknowledged and is %q", round, id, sb.State)
		}
		if l.deleted[id] && ok && sb.State == "running" {
			t.Errorf("round %d: sandbox %s was deleted, and runs", round, id)
		}
	}
	if _, ok := live[short]; short != "" && ok {
		t.Errorf("round %d: a sandbox is listed after its ttl", round)
	} else if short != "" {
		var sb api.Sandbox
		if s.must(200, "GET", "/v1/sandboxes/"+short, nil, &sb); sb.Ending != api.EndTTL {
			t.Errorf("round %d: the ttl passed without a daemon, and the ending is %q", round, sb.Ending)
		}
	}
	if n := len(s.processes("sandbox")); n != len(live) {
		time.Sleep(500 * time.Millisecond) // one may just be ending
		s.must(200, "GET", "/v1/sandboxes?limit=1000", nil, &list)
		if n := len(s.processes("sandbox")); n != len(list) {
			t.Errorf("round %d: the host runs %d sandboxes, the daemon lists %d", round, n, len(list))
		}
	}
	var v api.Verification
	if s.must(200, "POST", "/v1/audit/verify", head, &v); !v.OK {
		t.Errorf("round %d: verify: %+v", round, v)
	}
	all := s.log_(t)
	starts, ends := map[string]int{}, map[string]int{}
	for i, e := range all {
		if i > 0 && e.Seq != all[i-1].Seq+1 {
			t.Errorf("round %d: event %d follows %d", round, e.Seq, all[i-1].Seq)
		}
		if seen, ok := l.events[e.Seq]; ok && seen != e.ID {
			t.Errorf("round %d: event %d is another than it was", round, e.Seq)
		}
		var data struct {
			ExecID string `json:"exec_id"`
		}
		json.Unmarshal(e.Data, &data)
		switch e.Type {
		case api.EventExecStarted:
			starts[data.ExecID]++
		case api.EventExecEnded:
			ends[data.ExecID]++
		}
	}
	if n := len(all); n > 0 {
		for seq := range l.events {
			if seq > all[n-1].Seq {
				t.Errorf("round %d: event %d was seen and is gone", round, seq)
			}
		}
	}
	for id := range l.execs {
		if starts[id] != 1 || ends[id] != 1 {
			t.Errorf("round %d: exec %s was acknowledged, and the log has %d starts and %d ends", round, id, starts[id], ends[id])
		}
	}
}

// log_ is the whole log, page by page.
func (s *served) log_(t *testing.T) (all []api.Event) {
	t.Helper()
	for after := uint64(0); ; {
		var list api.EventList
		s.must(200, "GET", fmt.Sprintf("/v1/events?after=%d&limit=1000", after), nil, &list)
		if len(list.Events) == 0 {
			return all
		}
		all = append(all, list.Events...)
		after = list.Events[len(list.Events)-1].Seq
	}
}

// A counter holds a stream of a program that prints 0, 1, 2, ...
type counter struct {
	s             *served
	sandbox, exec string
	offset        int64
	next          int
	part          []byte
	err           error
}

func (c *counter) follow(down *sync.RWMutex, stop <-chan struct{}) {
	for c.err == nil {
		select {
		case <-stop:
			return
		default:
		}
		up(down)
		c.once(stop)
	}
}

// once reads the stream until it breaks.
func (c *counter) once(stop <-chan struct{}) {
	c.s.mu.Lock()
	url, token := c.s.url, c.s.token
	c.s.mu.Unlock()
	req, _ := http.NewRequest("GET", fmt.Sprintf("%s/v1/sandboxes/%s/execs/%s/output?offset=%d&follow=1", url, c.sandbox, c.exec, c.offset), nil)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		time.Sleep(20 * time.Millisecond)
		return
	}
	defer resp.Body.Close()
	go func() { <-stop; resp.Body.Close() }()
	if resp.StatusCode != 200 {
		if resp.StatusCode < 500 {
			c.err = fmt.Errorf("the stream answers %s", resp.Status)
		}
		return
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	for event := ""; sc.Scan(); {
		line := sc.Text()
		if e, ok := strings.CutPrefix(line, "event: "); ok {
			event = e
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || event != "chunk" {
			continue
		}
		var chunk api.Chunk
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			c.err = err
			return
		}
		if chunk.Offset != c.offset {
			c.err = fmt.Errorf("a piece begins at %d, the last one ended at %d", chunk.Offset, c.offset)
			return
		}
		c.offset += int64(len(chunk.Data))
		c.part = append(c.part, chunk.Data...)
		for {
			line, rest, ok := bytes.Cut(c.part, []byte("\n"))
			if !ok {
				break
			}
			if n, err := strconv.Atoi(string(line)); err != nil || n != c.next {
				c.err = fmt.Errorf("the program printed %q where %d comes next", line, c.next)
				return
			}
			c.next++
			c.part = append([]byte(nil), rest...)
		}
	}
}

// TestDaemonLeak: sandboxes made and ended many at a time, and many commands in
// one, leave nothing: no process, cgroup, directory, or memory of the daemon.
func TestDaemonLeak(t *testing.T) {
	s := serve(t)
	sandboxes, execs := 50, 1000
	if os.Getenv("BERM_PROOF") != "" {
		sandboxes, execs = 500, 10_000
	}
	id := s.create(api.CreateRequest{Limits: api.Limits{MemoryBytes: 128 << 20}})
	s.exec(id, "true")
	rss := func() int64 { return s.memory("VmRSS") }
	fds := func() int {
		ents, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		return len(ents)
	}
	for range 20 {
		s.exec(id, "true")
	}
	firstRSS, firstFDs := rss(), fds()
	began := time.Now()
	for i := range execs {
		if a := s.exec(id, "true"); a.ExitCode != 0 {
			t.Fatalf("exec %d: %+v", i, a)
		}
	}
	perExec := time.Since(began) / time.Duration(execs)
	var wg sync.WaitGroup
	work := make(chan int)
	for range 16 {
		wg.Go(func() {
			for range work {
				var sb api.Sandbox
				code, b, err := s.do("POST", "/v1/sandboxes", api.CreateRequest{Limits: api.Limits{MemoryBytes: 64 << 20}})
				if err != nil || code != 201 || json.Unmarshal(b, &sb) != nil {
					t.Errorf("create: %d %v %s", code, err, b)
					continue
				}
				if code, b, err := s.do("DELETE", "/v1/sandboxes/"+sb.SandboxID, nil); err != nil || code != 204 {
					t.Errorf("delete: %d %v %s", code, err, b)
				}
			}
		})
	}
	for i := range sandboxes {
		work <- i
	}
	close(work)
	wg.Wait()
	s.must(204, "DELETE", "/v1/sandboxes/"+id, nil, nil)
	var leaks api.LeakList
	if s.must(200, "GET", "/v1/doctor/leaks", nil, &leaks); len(leaks.Leaks) != 0 {
		t.Errorf("leaks: %+v", leaks)
	}
	if left := s.processes("sandbox"); len(left) != 0 {
		t.Errorf("processes are left: %v", slices.Collect(maps.Values(left)))
	}
	s.http.CloseIdleConnections()
	for end := time.Now().Add(5 * time.Second); fds() > firstFDs+16 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if n := fds(); n > firstFDs+16 {
		t.Errorf("the daemon had %d descriptors, and has %d", firstFDs, n)
	}
	if n := rss(); n > firstRSS+64<<20 {
		t.Errorf("the daemon had %d MiB, and has %d", firstRSS>>20, n>>20)
	}
	t.Logf("%d execs, %v each; %d sandboxes, 16 at a time; daemon %d -> %d MiB, %d -> %d descriptors",
		execs, perExec, sandboxes, firstRSS>>20, rss()>>20, firstFDs, fds())
}
