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
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// sending is a client whose server upgrades and sends frames until it is done
// or nobody takes them.
func sending(send func(net.Conn)) *Client {
	return New(Options{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if req, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				io.Copy(io.Discard, req.Body)
			}
			io.WriteString(theirs, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: berm-exec\r\nConnection: Upgrade\r\n\r\n")
			send(theirs)
		}()
		return ours, nil
	}})
}

func flood(c net.Conn, n int) {
	for range n {
		if _, err := io.WriteString(c, frame(api.FrameStdout, 32<<10, strings.Repeat("x", 32<<10))); err != nil {
			return
		}
	}
}

func result(ending string) string {
	b, _ := json.Marshal(api.ExecResult{Ending: ending})
	return frame(api.FrameResult, len(b), string(b))
}

// unreadPipe is a pipe that nobody reads.
func unreadPipe(t *testing.T) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	w.Fd() // blocking, as standard output is
	return w
}

func TestExecUnread(t *testing.T) {
	t.Run("the caller leaves", func(t *testing.T) {
		t.Parallel()
		c := sending(func(c net.Conn) { flood(c, 10000) })
		defer c.Close()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the user left")
		time.AfterFunc(200*time.Millisecond, func() { cancel(cause) })
		began := time.Now()
		_, err := c.Exec(ctx, "s", api.ExecRequest{Args: []string{"x"}}, Stdio{Stdout: unreadPipe(t)})
		var u *Unread
		if !errors.Is(err, cause) || !errors.As(err, &u) || u.Lost == 0 || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	t.Run("time is up", func(t *testing.T) {
		t.Parallel()
		c := sending(func(c net.Conn) { flood(c, 100); io.WriteString(c, result(api.EndTimeout)) })
		defer c.Close()
		began := time.Now()
		res, err := c.Exec(t.Context(), "s", api.ExecRequest{Args: []string{"x"}, TimeoutSeconds: 0.1}, Stdio{Stdout: unreadPipe(t)})
		var u *Unread
		if !errors.As(err, &u) || u.Err != nil || res.Ending != api.EndTimeout || u.Lost < 100*(32<<10)-(128<<10) || time.Since(began) > 15*time.Second {
			t.Errorf("%+v, %v after %v", res, err, time.Since(began))
		}
	})
	t.Run("read late", func(t *testing.T) { // a person at a pager: nothing is lost
		t.Parallel()
		r, w, _ := os.Pipe()
		c := sending(func(c net.Conn) { flood(c, 100); io.WriteString(c, result(api.EndExit)) })
		defer c.Close()
		n := make(chan int64)
		go func() {
			time.Sleep(unreadAfter + time.Second)
			m, _ := io.Copy(io.Discard, r)
			n <- m
		}()
		res, err := c.Exec(t.Context(), "s", api.ExecRequest{Args: []string{"x"}}, Stdio{Stdout: w})
		w.Close()
		if got := <-n; got != 100*(32<<10) || err != nil || res.Ending != api.EndExit {
			t.Errorf("%d bytes, %+v, %v", got, res, err)
		}
	})
	t.Run("closed", func(t *testing.T) { // as head -1 does
		t.Parallel()
		r, w, _ := os.Pipe()
		r.Close()
		c := sending(func(c net.Conn) { flood(c, 1); io.Copy(io.Discard, c) })
		defer c.Close()
		_, err := c.Exec(t.Context(), "s", api.ExecRequest{Args: []string{"x"}}, Stdio{Stdout: w})
		if !errors.Is(err, ErrOutput) || !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%v", err)
		}
	})
}

// Two streams that go to one place keep their order.
func TestExecOrder(t *testing.T) {
	var want, got bytes.Buffer
	c := sending(func(c net.Conn) {
		for i := range 500 {
			p := strings.Repeat(string(rune('a'+i%26)), 1+i*97%40000)
			want.WriteString(p)
			io.WriteString(c, frame(byte(api.FrameStdout+i%2), len(p), p))
		}
		io.WriteString(c, result(api.EndExit))
	})
	defer c.Close()
	if _, err := c.Exec(t.Context(), "s", api.ExecRequest{Args: []string{"x"}}, Stdio{Stdout: &got, Stderr: &got}); err != nil || got.String() != want.String() {
		t.Errorf("%d bytes of %d, %v", got.Len(), want.Len(), err)
	}
}
