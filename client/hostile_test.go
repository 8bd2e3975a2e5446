package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// answering is a client whose server answers every connection with raw bytes
// and then reads on.
func answering(raw string) *Client {
	return New(Options{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			r := bufio.NewReader(theirs)
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			io.WriteString(theirs, raw)
			if strings.Contains(raw, "101") {
				return
			}
			io.Copy(io.Discard, r)
		}()
		return ours, nil
	}})
}

func TestHostileAnswers(t *testing.T) {
	for _, tt := range []struct{ name, raw, says string }{
		{"no json", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz", "not what the API says"},
		{"error", "HTTP/1.1 400 Bad\r\nContent-Length: 44\r\n\r\n" + `{"error":"no","code":"limit.invalid","x":12}`, "no"},
		{"error without text", "HTTP/1.1 500 Bad\r\nContent-Length: 2\r\n\r\n{}", "without saying why"},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n", "redirect"},
		{"not http", "hello\r\n\r\n", "malformed"},
		{"nothing", "", ""},
		{"long header", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c := answering(tt.raw)
			defer c.Close()
			_, err := c.Get(ctx, "s")
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("err = %v, want %q", err, tt.says)
			}
		})
	}
	c := answering("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + `{"state":"` + strings.Repeat("x", maxBody+100))
	defer c.Close()
	if _, err := c.Get(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("endless answer: %v", err)
	}
}

func frame(kind byte, size int, payload string) string {
	var h [api.FrameHeader]byte
	api.PutFrameHeader(&h, kind, size)
	return string(h[:]) + payload
}

func TestHostileExec(t *testing.T) {
	const upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: berm-exec\r\nConnection: Upgrade\r\n\r\n"
	result, _ := json.Marshal(api.ExecResult{Ending: api.EndExit, ExitCode: 3})
	for _, tt := range []struct{ name, raw, says, out string }{
		{"good", upgrade + frame(api.FrameStdout, 2, "hi") + frame(api.FrameResult, len(result), string(result)), "", "hi"},
		{"error", upgrade + frame(api.FrameError, 14, `{"error":"no"}`), "no", ""},
		{"error without text", upgrade + frame(api.FrameError, 2, `{}`), "without saying why", ""},
		{"not upgraded", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "instead of upgrading", ""},
		{"too long", upgrade + frame(api.FrameStdout, api.MaxFrame+1, ""), "does not know", ""},
		{"a client's frame", upgrade + frame(api.FrameStdin, 1, "x"), "does not know", ""},
		{"unknown kind", upgrade + frame(200, 0, ""), "does not know", ""},
		{"cut in a header", upgrade + "\x10\x00", "broke off", ""},
		{"cut in a frame", upgrade + frame(api.FrameStdout, 9, "hi"), "broke off", ""},
		{"cut before the result", upgrade + frame(api.FrameStdout, 2, "hi"), "broke off", "hi"},
		{"short ack", upgrade + frame(api.FrameAck, 1, "x"), "short ack", ""},
		{"result of another kind", upgrade + frame(api.FrameResult, 2, `[]`), "result", ""},
		{"huge acks", upgrade + strings.Repeat(frame(api.FrameAck, 4, "\xff\xff\xff\xff"), 50) + frame(api.FrameResult, len(result), string(result)), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := answering(tt.raw)
			defer c.Close()
			var out bytes.Buffer
			res, err := c.Exec(t.Context(), "s", api.ExecRequest{Args: []string{"x"}}, Stdio{Stdout: &out})
			if tt.says == "" && (err != nil || res.ExitCode != 3) {
				t.Errorf("= %+v, %v", res, err)
			}
			if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("err = %v, want %q", err, tt.says)
			}
			if tt.out != "" && out.String() != tt.out {
				t.Errorf("out = %q", out.String())
			}
		})
	}
}

func TestExecEndsWithItsContext(t *testing.T) {
	c := New(Options{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			r := bufio.NewReader(theirs)
			if req, err := http.ReadRequest(r); err == nil {
				io.Copy(io.Discard, req.Body)
			}
			io.WriteString(theirs, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: berm-exec\r\nConnection: Upgrade\r\n\r\n")
			io.Copy(io.Discard, r)
			theirs.Close()
		}()
		return ours, nil
	}})
	defer c.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the user left")
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	if _, err := c.Exec(ctx, "s", api.ExecRequest{Args: []string{"x"}}, Stdio{}); !errors.Is(err, cause) {
		t.Errorf("err = %v", err)
	}
}

func TestReadFileIsCapped(t *testing.T) {
	c := answering("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n0123456789")
	defer c.Close()
	r, err := c.ReadFile(t.Context(), "s", "x", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if len(b) > 4 || !errors.Is(err, errMore) {
		t.Errorf("%q, %v", b, err)
	}
}
