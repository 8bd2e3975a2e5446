package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/bermhq/berm/api"
)

// script answers one connection after the other, and notes what was asked.
type script struct {
	mu    sync.Mutex
	raw   []string
	asked []string
}

func (s *script) client() *Client {
	return New(Options{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			req, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			s.mu.Lock()
			s.asked = append(s.asked, req.Method+" "+req.URL.RequestURI())
			raw := ""
			if len(s.raw) > 0 {
				raw, s.raw = s.raw[0], s.raw[1:]
			}
			s.mu.Unlock()
			io.WriteString(theirs, raw)
		}()
		return ours, nil
	}})
}

const (
	switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: berm-exec\r\nConnection: Upgrade\r\n\r\n"
	events    = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
)

func event(name string, v any) string {
	b, _ := json.Marshal(v)
	return fmt.Sprintf("event: %s\ndata: %s\n\n", name, b)
}

func refusing(status int, code string) string {
	b, _ := json.Marshal(api.Error{Code: code, Message: "refused"})
	return fmt.Sprintf("HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, len(b), b)
}

// A command is come back to at the byte where its connection broke, and runs
// once.
func TestExecKept(t *testing.T) {
	id := api.NewID(api.KindExec)
	post, output := "POST /v1/sandboxes/s/exec", "GET /v1/sandboxes/s/execs/"+id+"/output?"
	exit := event("exit", api.Exec{ExecID: id, State: api.ExecEnded, Result: &api.ExecResult{Ending: api.EndExit, ExitCode: 7}})
	lost := frame(api.FrameLost, 8, "\x00\x00\x00\x00\x00\x00\x00\x03")
	for _, tt := range []struct {
		name  string
		stdin bool
		raw   []string
		asked []string
		out   string
		lost  int64
		says  string // "": it ended with 7
	}{
		{name: "cut twice", raw: []string{
			switching + frame(api.FrameStdout, 2, "ab") + lost + frame(api.FrameStderr, 1, "c") + "\x10",
			"",
			events + event("chunk", api.Chunk{Stream: "stdout", Offset: 6, Data: []byte("d")}) + "event: chu",
			events + event("chunk", api.Chunk{Stream: "stderr", Offset: 9, Gap: 2, Data: []byte("e")}) + exit,
		}, asked: []string{post, output + "follow=1&offset=6", output + "follow=1&offset=6", output + "follow=1&offset=7"}, out: "abcde", lost: 5},
		{name: "not taken", raw: []string{"", switching + frame(api.FrameStdout, 1, "a"), events + exit},
			asked: []string{post, post, output + "follow=1&offset=1"}, out: "a"},
		{name: "not decided", raw: []string{switching, refusing(404, api.CodeExecNotFound), switching + frame(api.FrameStdout, 1, "a"), events + exit},
			asked: []string{post, output + "follow=1&offset=0", post, output + "follow=1&offset=1"}, out: "a"},
		{name: "bytes again", raw: []string{switching + frame(api.FrameStdout, 2, "ab"), events + event("chunk", api.Chunk{Stream: "stdout", Data: []byte("ab")}) + exit, ""},
			asked: []string{post, output + "follow=1&offset=2"}, out: "ab", says: "and 2 came next"},
		{name: "input under way", stdin: true, raw: []string{switching, "HTTP/1.1 204 X\r\nConnection: close\r\n\r\n"},
			asked: []string{post, "DELETE /v1/sandboxes/s/execs/" + id}, says: "input is not known"},
		{name: "output gone", raw: []string{switching + frame(api.FrameStdout, 1, "a"), refusing(410, api.CodeSandboxEnded), refusing(404, api.CodeSandboxNotFound)},
			asked: []string{post, output + "follow=1&offset=1", "GET /v1/sandboxes/s/execs/" + id}, out: "a", says: "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{raw: tt.raw}
			c := s.client()
			defer c.Close()
			var out bytes.Buffer
			var gone int64
			sio := Stdio{Stdout: &out, Stderr: &out, Lost: func(n int64) { gone += n }}
			if tt.stdin {
				r, w := io.Pipe()
				defer w.Close()
				sio.Stdin = r
			}
			res, err := c.ExecKept(t.Context(), "s", api.ExecRequest{Args: []string{"x"}, ExecID: id, Stdin: tt.stdin}, sio, nil)
			if tt.says == "" && (err != nil || res.ExitCode != 7) {
				t.Errorf("= %+v, %v", res, err)
			}
			if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("err = %v, want %q", err, tt.says)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if asked := s.asked[:min(len(s.asked), len(tt.asked))]; strings.Join(asked, "\n") != strings.Join(tt.asked, "\n") {
				t.Errorf("asked %q", s.asked)
			}
			if out.String() != tt.out || gone != tt.lost {
				t.Errorf("output %q, %d lost", &out, gone)
			}
		})
	}
}

// What never was asked is no command that may still run, and what broke without
// an id is one that ended.
func TestExecNotAsked(t *testing.T) {
	c := New(Options{URL: "http://127.0.0.1:1"})
	defer c.Close()
	var adrift *Adrift
	if _, err := c.ExecKept(t.Context(), "s", api.ExecRequest{}, Stdio{}, nil); err == nil || errors.As(err, &adrift) {
		t.Errorf("err = %v", err)
	}
	s := &script{raw: []string{switching}}
	c = s.client()
	defer c.Close()
	if _, err := c.Exec(t.Context(), "s", api.ExecRequest{}, Stdio{}); !errors.As(err, &adrift) || adrift.ExecID != "" {
		t.Errorf("err = %v", err)
	}
}
