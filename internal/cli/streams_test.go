package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/testkit"
)

// live is a command line whose output is read while it runs.
func (w *world) live(ctx context.Context, args ...string) (lines *bufio.Scanner, over <-chan int) {
	w.t.Helper()
	pr, pw, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	errs, err := os.Create(filepath.Join(w.t.TempDir(), "err"))
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan int, 1)
	go func() {
		defer pw.Close()
		done <- cli.Main(ctx, cli.Env{Args: args, Stdin: null, Stdout: pw, Stderr: errs, Open: w.open, Connect: w.connect})
	}()
	w.t.Cleanup(func() { pr.Close(); null.Close(); errs.Close() })
	return bufio.NewScanner(pr), done
}

func TestPort(t *testing.T) {
	w := newWorld(t).daemon()
	id := w.berm("create")
	inside, err := net.Listen("tcp", "127.0.0.1:0") // the fake's inside is this host
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	go func() {
		for {
			nc, err := inside.Accept()
			if err != nil {
				return
			}
			go func() {
				b, _ := io.ReadAll(nc) // ends only if the half-close gets through
				fmt.Fprintf(nc, "got %s", b)
				nc.Close()
			}()
		}
	}()
	port := fmt.Sprint(inside.Addr().(*net.TCPAddr).Port)
	code, out, errs := w.run(t.Context(), "stdin", "port", id, port, "-")
	if code != 0 || out != "got stdin" {
		t.Fatalf("port -: %d %q %q", code, out, errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, over := w.live(ctx, "port", id, port) // which is taken here, so it takes another
	if !lines.Scan() || strings.HasSuffix(lines.Text(), ":"+port) {
		t.Fatalf("address %q", lines.Text())
	}
	for range 3 {
		nc, err := net.Dial("tcp", lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(nc, "tcp")
		nc.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(nc)
		nc.Close()
		if string(b) != "got tcp" || err != nil {
			t.Errorf("%q %v", b, err)
		}
	}
	w.berm("kill", "-q", id)
	nc, err := net.Dial("tcp", lines.Text())
	if err == nil { // it ends when it learns that the sandbox is gone
		io.ReadAll(nc)
		nc.Close()
	}
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("it goes on without a sandbox")
	}
}

func TestFollowEvents(t *testing.T) {
	w := newWorld(t).daemon()
	ctx, cancel := context.WithCancel(t.Context())
	lines, over := w.live(ctx, "events", "-f", "--json", "--type", "sandbox.created", "--type", "sandbox.ended")
	id := w.berm("create")
	w.berm("kill", "-q", id)
	for _, want := range []string{"sandbox.created", "sandbox.ended"} {
		var e api.Event
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || e.Type != want || e.SandboxID != id {
			t.Fatalf("%q, want %s", lines.Text(), want)
		}
	}
	cancel()
	<-over
}

func TestWatchAndLogs(t *testing.T) {
	w := newWorld(t).daemon()
	id := w.berm("create")
	w.berm("attach", w.berm("exec", "-d", id, "echo", "logged"))
	if out := w.berm("logs", id); !strings.Contains(out, "logged") {
		t.Errorf("logs: %q", out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, over := w.live(ctx, "fs", "watch", id)
	seen := make(chan string)
	go func() {
		for lines.Scan() {
			seen <- lines.Text()
		}
		close(seen)
	}()
	deadline := time.After(20 * time.Second)
	for n := 0; ; n++ { // until it watches
		_, _, errs := w.run(t.Context(), "x", "cp", "-", fmt.Sprintf("%s:new%d", id, n))
		select {
		case line, ok := <-seen:
			if !ok || !strings.Contains(line, "/new") {
				t.Errorf("watch: %q, cp: %q", line, errs)
			}
			cancel()
			<-over
			for range seen {
			}
			return
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatal("nothing was seen")
		}
	}
}

// A follower outlives its daemon: it goes on where it was, and nothing is shown
// twice or lost.
func TestAttachOverARestart(t *testing.T) {
	var mu sync.Mutex
	var offsets []string
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/output") {
			json.NewEncoder(rw).Encode(api.Sandbox{})
			return
		}
		mu.Lock()
		n := len(offsets)
		offsets = append(offsets, r.URL.Query().Get("offset"))
		mu.Unlock()
		rw.Header().Set("Content-Type", "text/event-stream")
		chunk := func(offset int, s string) {
			b, _ := json.Marshal(api.Chunk{Stream: "stdout", Offset: int64(offset), Data: []byte(s)})
			fmt.Fprintf(rw, "event: chunk\ndata: %s\n\n", b)
			http.NewResponseController(rw).Flush()
		}
		switch n {
		case 0:
			chunk(0, "one ")
			panic(http.ErrAbortHandler)
		case 1:
			panic(http.ErrAbortHandler)
		}
		chunk(4, "two")
		io.WriteString(rw, "event: exit\ndata: {\"state\":\"ended\",\"result\":{\"ending\":\"exit\",\"exit_code\":3}}\n\n")
	})
	w := newWorld(t)
	dial := testkit.Serve(t, h)
	w.connect = func(context.Context, cli.ConnectOptions) (*cli.Session, error) {
		c := client.New(client.Options{Dial: dial})
		return &cli.Session{Client: c, Close: func() error { c.Close(); return nil }}, nil
	}
	code, out, errs := w.run(t.Context(), "", "attach", api.NewID(api.KindSandbox), api.NewID(api.KindExec))
	if code != 3 || out != "one two" || errs != "" || strings.Join(offsets, " ") != "0 4 4" {
		t.Errorf("%d %q %q, asked for %q", code, out, errs, offsets)
	}
}
