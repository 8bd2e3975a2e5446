package server_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

// client is an HTTP client on the edge.
func (e *edge) client() *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) }}
	e.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// get opens a route and returns the answer, whose body is the caller's.
func (e *edge) open(ctx context.Context, method, path, body string) *http.Response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://berm"+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := e.client().Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (e *edge) createWith(body string) string {
	e.t.Helper()
	status, out := e.do("POST", "/v1/sandboxes", body)
	var sb api.Sandbox
	if err := json.Unmarshal([]byte(out), &sb); err != nil || status != 201 {
		e.t.Fatalf("create: %d %s", status, out)
	}
	return sb.SandboxID
}

// run makes a plain exec that must be answered with 200.
func (e *edge) run(id, body string) (a api.ExecAnswer) {
	e.t.Helper()
	status, out := e.do("POST", "/v1/sandboxes/"+id+"/exec", body)
	if err := json.Unmarshal([]byte(out), &a); err != nil || status != 200 {
		e.t.Fatalf("%s: %d %.300s", body, status, out)
	}
	return a
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestExecPlain(t *testing.T) {
	e := newEdge(t)
	id := e.createWith(`{"limits":{"output_bytes":1000,"memory_bytes":67108864}}`)
	for _, tt := range []struct {
		body           string
		code           int
		ending         string
		stdout, stderr string
	}{
		{`{"args":["echo","hi"]}`, 0, "exit", "hi\n", ""},
		{`{"args":["warn","oh"]}`, 0, "exit", "", "oh\n"},
		{`{"args":["exit","3"]}`, 3, "exit", "", ""},
		{`{"args":["nope"]}`, 127, "exit", "", "berm: not started: nope: no such file or directory\n"},
		{`{"args":["cat"],"input":"from here"}`, 0, "exit", "from here", ""},
		{`{"args":["cat"]}`, 0, "exit", "", ""},
		{`{"args":["hog","1e9"]}`, 137, "memory", "", ""},
		{`{"cmd":"echo a; warn b; exit 4"}`, 4, "exit", "a\n", "b\n"},
		{`{"cmd":"echo part; sleep 60","timeout_seconds":0.2}`, 124, "timeout", "part\n", ""},
		{`{"cmd":"echo é€𝄞","timeout_seconds":5.5}`, 0, "exit", "é€𝄞\n", ""},
		{`{"cmd":"true","timeout_seconds":null,"env":null}`, 0, "exit", "", ""},
	} {
		a := e.run(id, tt.body)
		if a.ExitCode != tt.code || a.Ending != tt.ending || a.Stdout != tt.stdout || a.Stderr != tt.stderr || a.TimedOut != (tt.ending == "timeout") || a.Truncated != (api.Truncated{}) {
			t.Errorf("%s: %+v", tt.body, a)
		}
	}

	// A flood is cut in the middle, and ended.
	a := e.run(id, `{"args":["yes"]}`)
	if a.Ending != api.EndOutput || len(a.Stdout) != 1000 || !a.Truncated.Stdout || a.Truncated.Stderr || a.Truncated.DroppedBytes != 63000 {
		t.Errorf("%s %d %+v", a.Ending, len(a.Stdout), a.Truncated)
	}
	// More input than the program reads at once, and than anybody takes ahead.
	in := strings.Repeat("0123456789abcdef", 40<<10)
	if a = e.run(id, `{"args":["cat"],"input":"`+in+`"}`); a.Ending != api.EndOutput && int64(len(a.Stdout))+a.Truncated.DroppedBytes != int64(len(in)) {
		t.Errorf("%s: %d and %d bytes", a.Ending, len(a.Stdout), a.Truncated.DroppedBytes)
	}
	if a = e.run(id, `{"args":["sleep","0.05"],"input":"`+in+`"}`); a.Ending != api.EndExit {
		t.Errorf("%+v", a)
	}

	// Bytes that are no text.
	if status, body := e.do("PUT", "/v1/sandboxes/"+id+"/fs?path=/workspace/bin", "a\xffb\x00"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	a = e.run(id, `{"args":["cat","bin"]}`)
	if raw, _ := base64.StdEncoding.DecodeString(a.StdoutBase64); a.Stdout != "a\uFFFDb\x00" || string(raw) != "a\xffb\x00" || a.StderrBase64 != "" {
		t.Errorf("%q %q", a.Stdout, a.StdoutBase64)
	}
}

func TestExecRefused(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	for body, code := range map[string]string{
		`{}`:                                   api.CodeBadRequest,
		`{"cmd":""}`:                           api.CodeBadRequest,
		`{"cmd":"a","args":["b"]}`:             api.CodeBadRequest,
		`{"cmd":"a","command":"b"}`:            api.CodeBadRequest,
		`{"cmd":"true","stdin":true}`:          api.CodeBadRequest,
		`{"cmd":"true","tty":true}`:            api.CodeBadRequest,
		`{"cmd":"true","timeout_seconds":-3}`:  api.CodeBadRequest,
		`{"cmd":"true","timeout_seconds":"1"}`: api.CodeBadRequest,
		`{"cmd":"true","timeout_seconds":1e9}`: api.CodeBadRequest,
		`{"cmd":"true","cwd":"relative"}`:      api.CodeBadRequest,
		`{"cmd":"true","exec_id":"\u0000"}`:    api.CodeBadRequest,
	} {
		for _, route := range []string{"exec", "exec/stream"} {
			if route == "exec/stream" && (strings.Contains(body, "stdin") || strings.Contains(body, "tty")) {
				continue
			}
			status, out := e.do("POST", "/v1/sandboxes/"+id+"/"+route, body)
			var ae api.Error
			if json.Unmarshal([]byte(out), &ae); ae.Code != code || status != api.Status(code) {
				t.Errorf("%s %.60s: %d %.200s", route, body, status, out)
			}
		}
	}
	if status, out := e.do("POST", "/v1/sandboxes/s00000000000000000000000/exec", `{"cmd":"true"}`); status != 404 {
		t.Errorf("%d %s", status, out)
	}
	if status, out := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"true"}`, "Upgrade", "h2c", "Connection", "Upgrade"); status != 400 {
		t.Errorf("%d %s", status, out)
	}
}

// An answer that takes long begins before it is known, and shows that it lives.
func TestExecKeepsAlive(t *testing.T) {
	e := newEdgeWith(t, server.Options{Heartbeat: 40 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	began := time.Now()
	resp := e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"echo a; sleep 0.5; echo b"}`)
	if d := time.Since(began); d > 450*time.Millisecond || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %q after %v", resp.StatusCode, resp.Header.Get("Content-Type"), d)
	}
	b, err := io.ReadAll(resp.Body)
	var a api.ExecAnswer
	if err != nil || json.Unmarshal(b, &a) != nil || a.Stdout != "a\nb\n" || a.ExitCode != 0 {
		t.Errorf("%q %v", b, err)
	}
	if n := len(b) - len(strings.TrimLeft(string(b), " ")); n < 3 {
		t.Errorf("%d blanks", n)
	}

	// The sandbox goes away under it: the answer is whole, and no success.
	resp = e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep","60"],"timeout_seconds":20}`)
	deleted := make(chan struct{})
	go func() { defer close(deleted); e.do("DELETE", "/v1/sandboxes/"+id, "") }()
	b, err = io.ReadAll(resp.Body)
	<-deleted
	a = api.ExecAnswer{}
	if err != nil || json.Unmarshal(b, &a) != nil || a.Ending != api.EndKilled || a.ExitCode != 137 {
		t.Errorf("%q %v", b, err)
	}
}

func (e *edge) running(id string) int {
	status, body := e.do("GET", "/v1/sandboxes/"+id+"/execs", "")
	var l api.ExecList
	if json.Unmarshal([]byte(body), &l) != nil || status != 200 {
		e.t.Fatalf("execs: %d %s", status, body)
	}
	n := 0
	for _, x := range l.Execs {
		if x.State == api.ExecRunning {
			n++
		}
	}
	return n
}

// A client that leaves ends its plain exec, whether it had an answer's begin or
// not.
func TestExecLeft(t *testing.T) {
	e := newEdgeWith(t, server.Options{Heartbeat: 40 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	for _, begun := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://berm/v1/sandboxes/"+id+"/exec", strings.NewReader(`{"args":["sleep","60"],"timeout_seconds":30}`))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := e.client().Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		until(t, "it runs", func() bool { return e.running(id) == 1 })
		if begun {
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		<-done
		until(t, "it has ended", func() bool { return e.running(id) == 0 })
	}
}

// event is one event of a stream.
type event struct {
	name, id, data string
}

// A feed reads the events of one answer. It fails on anything that PandaStack's
// clients could not read.
type feed struct {
	t  *testing.T
	sc *bufio.Scanner
}

func newFeed(t *testing.T, resp *http.Response) *feed {
	t.Helper()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" || resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %q %.300s", resp.StatusCode, got, b)
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	return &feed{t, sc}
}

// next is the next event; ok is false at the end.
func (f *feed) next() (ev event, ok bool) {
	f.t.Helper()
	for f.sc.Scan() {
		line := f.sc.Text()
		for _, c := range []byte(line) {
			if c < 0x20 || c > 0x7e {
				f.t.Fatalf("%.100q is not plain ASCII", line)
			}
		}
		if len(line) > 32<<10 {
			f.t.Fatalf("a line of %d bytes", len(line))
		}
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "event":
			ev.name = value
		case "id":
			ev.id = value
		case "data":
			ev.data = value
		case "":
			if line == "" && ev != (event{}) {
				return ev, true
			}
		}
	}
	if f.sc.Err() != nil {
		f.t.Fatal(f.sc.Err())
	}
	return ev, false
}

func (f *feed) must() event {
	f.t.Helper()
	ev, ok := f.next()
	if !ok {
		f.t.Fatal("the stream has ended")
	}
	return ev
}

func (f *feed) rest() (out []event) {
	f.t.Helper()
	for {
		ev, ok := f.next()
		if !ok {
			return out
		}
		out = append(out, ev)
	}
}

func events(t *testing.T, resp *http.Response) []event {
	t.Helper()
	return newFeed(t, resp).rest()
}

func decodeData[T any](t *testing.T, ev event) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(ev.data), &v); err != nil {
		t.Fatalf("%+v: %v", ev, err)
	}
	return v
}

func TestExecStream(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	resp := e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec/stream", `{"cmd":"echo é\u200bx; warn b; exit 5"}`)
	if !api.ValidID(resp.Header.Get("X-Exec-Id")) {
		t.Errorf("%v", resp.Header)
	}
	var stdout, stderr string
	evs := events(t, resp)
	for _, ev := range evs[:len(evs)-1] {
		p := decodeData[struct{ Chunk string }](t, ev)
		switch ev.name {
		case "stdout":
			stdout += p.Chunk
		case "stderr":
			stderr += p.Chunk
		default:
			t.Errorf("%+v", ev)
		}
	}
	end := evs[len(evs)-1]
	if res := decodeData[api.ExecResult](t, end); stdout != "é\u200bx\n" || stderr != "b\n" || end.name != "exit" || res.ExitCode != 5 || res.Ending != "exit" {
		t.Errorf("%q %q %+v", stdout, stderr, end)
	}

	// PandaStack's clients take an error with the word in it for the timeout.
	evs = events(t, e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec/stream", `{"cmd":"echo part; sleep 60","timeout_seconds":0.3}`))
	if len(evs) != 2 || evs[0].name != "stdout" || evs[1].name != "error" {
		t.Fatalf("%+v", evs)
	}
	last := decodeData[struct {
		Error    string `json:"error"`
		ExitCode int    `json:"exit_code"`
		TimedOut bool   `json:"timed_out"`
	}](t, evs[1])
	if !strings.HasPrefix(last.Error, "command timeout") || last.ExitCode != 124 || !last.TimedOut {
		t.Errorf("%+v", last)
	}

	// A flood ends at the flood bound, and the stream with it.
	id = e.createWith(`{"limits":{"output_bytes":2000}}`)
	n := 0
	evs = events(t, e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec/stream", `{"args":["yes"]}`))
	for _, ev := range evs[:len(evs)-1] {
		n += len(decodeData[struct{ Chunk string }](t, ev).Chunk)
	}
	if res := decodeData[api.ExecResult](t, evs[len(evs)-1]); res.Ending != api.EndOutput || n > 2000*api.FloodFactor {
		t.Errorf("%d bytes, %+v", n, res)
	}
}

func TestStreamBeats(t *testing.T) {
	e := newEdgeWith(t, server.Options{Heartbeat: 30 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	resp := e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec/stream", `{"args":["sleep","0.4"]}`)
	b, err := io.ReadAll(resp.Body)
	if n := strings.Count(string(b), ":\n\n"); err != nil || n < 3 {
		t.Errorf("%d heartbeats in %q, %v", n, b, err)
	}
}

// A detached command goes on without its caller, and its output can be read
// from anywhere.
func TestDetached(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	status, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"echo one; cat; echo two","detach":true,"stdin":true}`)
	var x api.Exec
	if err := json.Unmarshal([]byte(body), &x); err != nil || status != 202 || x.State != api.ExecRunning || !x.Detached {
		t.Fatalf("%d %s", status, body)
	}
	at := "/v1/sandboxes/" + id + "/execs/" + x.ExecID
	if n := e.running(id); n != 1 {
		t.Errorf("%d commands run", n)
	}
	// What is there by now, without waiting for more.
	until(t, "its first line is there", func() bool {
		evs := events(t, e.open(t.Context(), "GET", at+"/output", ""))
		end := decodeData[api.Exec](t, evs[len(evs)-1])
		return evs[len(evs)-1].name == "exit" && end.State == api.ExecRunning && len(evs) > 1
	})
	resp := e.open(t.Context(), "GET", at+"/output?follow=1", "")
	if status, body = e.do("POST", at+"/stdin", "input "); status != 200 || body != "{\"bytes\":6}\n" {
		t.Errorf("stdin: %d %s", status, body)
	}
	if status, body = e.do("POST", at+"/stdin?end=1", "and its end\n"); status != 200 {
		t.Errorf("stdin: %d %s", status, body)
	}
	all := ""
	evs := events(t, resp)
	for _, ev := range evs[:len(evs)-1] {
		c := decodeData[api.Chunk](t, ev)
		if c.Offset != int64(len(all)) || ev.id != fmt.Sprint(len(all)+len(c.Data)) || ev.name != "chunk" {
			t.Errorf("%+v after %d bytes", ev, len(all))
		}
		all += string(c.Data)
	}
	end := decodeData[api.Exec](t, evs[len(evs)-1])
	if all != "one\ninput and its end\ntwo\n" || end.Result == nil || end.Result.ExitCode != 0 || end.State != api.ExecEnded {
		t.Errorf("%q %+v", all, end)
	}
	for offset := range len(all) + 1 {
		evs := events(t, e.open(t.Context(), "GET", at+fmt.Sprintf("/output?follow=1&offset=%d", offset), ""))
		got := ""
		for _, ev := range evs[:len(evs)-1] {
			got += string(decodeData[api.Chunk](t, ev).Data)
		}
		if got != all[offset:] {
			t.Errorf("from %d: %q", offset, got)
		}
	}
	// An id names one command.
	if status, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"echo other","exec_id":"`+x.ExecID+`"}`); status != 409 {
		t.Errorf("its id for another command: %d %s", status, body)
	}
	for path, want := range map[string]int{
		"/output?offset=-1": 400, "/output?offset=x": 400, "/output?follow=yes": 400, "/output?from=1": 400,
	} {
		if status, body := e.do("GET", at+path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"DELETE", "", ""}, {"GET", "/output", ""}, {"POST", "/signal", `{"signal":"TERM"}`}, {"POST", "/stdin", "x"},
	} {
		if status, body := e.do(tt.method, "/v1/sandboxes/"+id+"/execs/x00000000000000000000000"+tt.path, tt.body); status != 404 || !strings.Contains(body, api.CodeExecNotFound) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, status, body)
		}
	}
}

func TestSignalAndKill(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	for _, end := range []func(at string) (int, string){
		func(at string) (int, string) { return e.do("POST", at+"/signal", `{"signal":"KILL"}`) },
		func(at string) (int, string) { return e.do("DELETE", at, "") },
	} {
		_, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep","60"],"detach":true,"timeout_seconds":25}`)
		var x api.Exec
		json.Unmarshal([]byte(body), &x)
		at := "/v1/sandboxes/" + id + "/execs/" + x.ExecID
		if status, body := e.do("POST", at+"/signal", `{"signal":"NOPE"}`); status != 400 {
			t.Errorf("%d %s", status, body)
		}
		if status, body := end(at); status != 204 {
			t.Errorf("%d %s", status, body)
		}
		until(t, "it has ended", func() bool { return e.running(id) == 0 })
		if status, body := e.do("DELETE", at, ""); status != 204 {
			t.Errorf("killing it again: %d %s", status, body)
		}
	}
}

// Many that ask for one id at once get one run.
func TestExecOnce(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	out := make(chan string, 8)
	for range cap(out) {
		go func() {
			_, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"echo ran; sleep 0.2","exec_id":"x0123456789abcdef01234567"}`)
			out <- body
		}()
	}
	for range cap(out) {
		var a api.ExecAnswer
		if body := <-out; json.Unmarshal([]byte(body), &a) != nil || a.Stdout != "ran\n" || a.ExecID != "x0123456789abcdef01234567" {
			t.Errorf("%s", body)
		}
	}
	_, body := e.do("GET", "/v1/sandboxes/"+id+"/execs", "")
	var l api.ExecList
	if json.Unmarshal([]byte(body), &l); len(l.Execs) != 1 {
		t.Errorf("%s", body)
	}
}
