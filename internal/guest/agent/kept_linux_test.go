package agent_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// keptSuite is what kept processes promise on a real machine.
func keptSuite(t *testing.T, c *guest.Client) {
	ctx := ctxFor(t, 60*time.Second)
	start := func(id, script string, keep int64) *guest.Process {
		s := user(id, "sh", "-c", script)
		s.Keep, s.Stdin = keep, true
		return begin(t, c, s)
	}
	t.Run("both streams", func(t *testing.T) {
		p := start("both", "echo out; sleep 0.05; echo err >&2; sleep 0.05; echo out2; exit 3", 1<<20)
		if out, errs := drain(t, ctx, p); out != "" || errs != "" || p.Exit().Code != 3 {
			t.Errorf("%q, %q, %+v", out, errs, p.Exit())
		}
		a, err := c.Attach(ctx, "both", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		out, errs := drain(t, ctx, a)
		if out != "out\nout2\n" || errs != "err\n" || a.Exit().Code != 3 || a.Info().OutputBytes != 13 {
			t.Errorf("%q, %q, %+v", out, errs, a.Info())
		}
	})
	t.Run("halves", func(t *testing.T) {
		drain(t, ctx, start("halves", "head -c 10000000 /dev/zero; printf end", 2000))
		a, err := c.Attach(ctx, "halves", 0, false)
		if err != nil {
			t.Fatal(err)
		}
		var n, gap int64
		var last string
		for {
			ch, err := a.Chunk(ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			n, gap, last = n+int64(len(ch.Data)), gap+ch.Gap, string(ch.Data)
		}
		if n != 2000 || n+gap != 10000003 || !strings.HasSuffix(last, "\x00end") {
			t.Errorf("%d bytes, a gap of %d, %.20q", n, gap, last)
		}
	})
	t.Run("follow all", func(t *testing.T) {
		p := start("all", "read x; head -c 20000000 /dev/zero", 1000)
		a, err := c.Attach(ctx, "all", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, "go\n")
		var n int64
		for {
			ch, err := a.Chunk(ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if ch.Gap != 0 {
				t.Fatalf("a gap of %d at %d", ch.Gap, ch.Offset)
			}
			n += int64(len(ch.Data))
		}
		if n != 20000000 {
			t.Errorf("%d bytes", n)
		}
		drain(t, ctx, p)
	})
	t.Run("ends", func(t *testing.T) {
		s := user("late", "sh", "-c", "(setsid sleep 986 &); sleep 986")
		s.Keep, s.TimeoutMS = 100, 200
		p := begin(t, c, s)
		if drain(t, ctx, p); p.Exit().EndedBy != guest.EndedTimeout || p.Exit().Signal != 9 {
			t.Errorf("%+v", p.Exit())
		}
		s = user("flood", "yes", "bermflood")
		s.Keep, s.Flood = 100, 5<<20
		p = begin(t, c, s)
		if drain(t, ctx, p); p.Exit().EndedBy != guest.EndedOutput {
			t.Errorf("%+v", p.Exit())
		}
		if left := user("left", "pgrep", "-f", "sleep 986|yes bermflood"); true {
			if out, _, _ := result(t, c, left, ""); out != "" {
				t.Errorf("left: %q", out)
			}
		}
	})
	t.Run("background", func(t *testing.T) {
		// It writes to the output of its exec, which ended, and must not die of it.
		name := fmt.Sprintf("/tmp/berm-background-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid()) // others may run the same
		defer c.Remove(ctx, name, false)
		for _, keep := range []int64{0, 1000} {
			c.Remove(ctx, name, false)
			s := user("bg"+name, "sh", "-c", "(sleep 0.3; echo line; echo line; echo alive > "+name+"; exec sleep 985) & echo started")
			s.Keep, s.ID = keep, "bg"+string(rune('a'+keep%7))
			p := begin(t, c, s)
			began := time.Now()
			drain(t, ctx, p)
			if !p.Exit().Background || time.Since(began) > 5*time.Second {
				t.Errorf("%+v after %v", p.Exit(), time.Since(began))
			}
			for {
				if r, err := c.ReadFile(ctx, name, 100); err == nil {
					b, _ := io.ReadAll(r)
					r.Close()
					if string(b) == "alive\n" {
						break
					}
				} else if ctx.Err() != nil {
					t.Fatal("the background did not live on")
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err := c.Kill(ctx, s.ID); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("terminal", func(t *testing.T) {
		s := user("tty", "sh", "-c", "stty size; read x; echo got $x; stty size; read y || echo end")
		s.TTY, s.Rows, s.Cols, s.Keep = true, 33, 77, 1<<16
		p := begin(t, c, s)
		a, err := c.Attach(ctx, "tty", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		seen := ""
		expect := func(want string) {
			t.Helper()
			for !strings.Contains(seen, want) {
				_, b, err := a.Read(ctx)
				if err != nil {
					t.Fatalf("waiting for %q after %q: %v", want, seen, err)
				}
				seen += string(b)
			}
		}
		expect("33 77")
		if err := c.Resize(ctx, "tty", 44, 88); err != nil {
			t.Error(err)
		}
		in, err := c.Stdin(ctx, "tty")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, "word\n")
		if err := in.Leave(); err != nil {
			t.Error(err)
		}
		expect("got word")
		expect("44 88")
		if in, err = c.Stdin(ctx, "tty"); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		expect("end")
		drain(t, ctx, p)
	})
	t.Run("deaf", func(t *testing.T) {
		p := start("deaf", "exec sleep 984", 1000)
		in, err := c.Stdin(ctx, "deaf")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, strings.Repeat("x", 300_000)) // more than the pipe holds
		for range 100 {                                  // those who give up leave nothing behind
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			if q, err := c.Stdin(short, "deaf"); err == nil {
				q.Write([]byte("y"))
				q.Leave()
			}
			cancel()
		}
		if err := c.Signal(ctx, "deaf", 15); err != nil {
			t.Error(err)
		}
		if drain(t, ctx, p); p.Exit().Signal != 15 {
			t.Errorf("%+v", p.Exit())
		}
		if err := in.Leave(); err == nil {
			t.Error("input to nobody was taken")
		}
	})
	t.Run("lists", func(t *testing.T) {
		l, err := c.Processes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(l, func(p guest.ProcessInfo) bool { return p.ID == "both" })
		if i < 0 || l[i].Running || l[i].Exit.Code != 3 || l[i].PID <= 1 || l[i].StartedNanos == 0 || len(l[i].Args) != 3 {
			t.Errorf("%+v", l)
		}
	})
}

// portSuite is what connections promise on a real machine.
func portSuite(t *testing.T, c *guest.Client) {
	ctx := ctxFor(t, 60*time.Second)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs python3: ", err)
	}
	const server = `
import socket, sys, threading
def serve(c):
    while True:
        b = c.recv(65536)
        if not b: break
        c.sendall(b)
    c.sendall(b"end")
    c.close()
for family, addr in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
    s = socket.socket(family)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((addr, 0)); s.listen(16)
    def accept(s=s):
        while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()
    threading.Thread(target=accept).start()
    print(s.getsockname()[1], flush=True)
`
	p := begin(t, c, user("server", "python3", "-c", server))
	lines := ""
	for strings.Count(lines, "\n") < 2 {
		_, b, err := p.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lines += string(b)
	}
	ports, err := c.Ports(ctx)
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	for _, s := range strings.Fields(lines) {
		port := 0
		for _, d := range s {
			port = port*10 + int(d-'0')
		}
		if !slices.Contains(ports, port) {
			t.Errorf("%d is not among %v", port, ports)
		}
		n := dial(t, c, port)
		go func() {
			io.WriteString(n, big)
			n.CloseWrite()
		}()
		if b, err := io.ReadAll(n); err != nil || string(b) != big+"end" {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
	began := time.Now()
	for range 20 {
		n, err := c.Dial(ctx, ports[0])
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
	}
	t.Logf("dial: %v", time.Since(began)/20)
	p.Kill(ctx)
	drain(t, ctx, p)
	w, err := c.Watch(ctx, "/tmp", false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	name := filepath.Join("/tmp", "berm-watched-"+strings.ReplaceAll(t.Name(), "/", "-"))
	defer c.Remove(ctx, name, false)
	result(t, c, user("touch", "sh", "-c", "echo x > "+name+"; echo y >> "+name+"; rm "+name), "")
	changes(t, w, "create "+name, "write "+name, "remove "+name)
	defer c.Remove(ctx, name+"-dir", true)
	if err := c.Mkdir(ctx, name+"-dir", 0o755, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	deep, err := c.Watch(ctx, name+"-dir", true)
	if err != nil {
		t.Fatal(err)
	}
	defer deep.Close()
	file := name + "-dir/a/b/file"
	if err := c.WriteFile(ctx, file, 0o640, 1000, 1000, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	changes(t, deep, "create "+name+"-dir/a", "create "+file)
	for p := file; p != name+"-dir"; p = filepath.Dir(p) {
		if fi, err := c.Stat(ctx, p); err != nil || fi.UID != 1000 || fi.GID != 1000 {
			t.Errorf("%+v, %v: not its user's", fi, err)
		}
	}
	if err := c.WriteFile(ctx, file, 0o640, 1000, 1000, strings.NewReader("y")); err != nil {
		t.Fatal(err)
	}
	changes(t, deep, "create "+file, "write "+file)
	writesKeep(t, c, name+"-dir", user)
}

// writesKeep writes over another's program, by its name and through a link.
func writesKeep(t *testing.T, c *guest.Client, dir string, user func(string, ...string) guest.Start) {
	ctx := ctxFor(t, 10*time.Second)
	program, link := dir+"/program", dir+"/link"
	if err := c.WriteFile(ctx, program, 0o750, 0, 2000, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	result(t, c, user("link", "ln", "-s", program, link), "")
	for _, to := range []string{program, link} {
		if err := c.WriteFile(ctx, to, 0o644|guest.KeepMode, 1000, 1000, strings.NewReader("new")); err != nil {
			t.Fatal(err)
		}
		if fi, err := c.Stat(ctx, to); err != nil || fi.Kind != guest.KindFile || fi.Mode != 0o750 || fi.UID != 0 || fi.GID != 2000 || fi.Size != 3 {
			t.Errorf("%s: %+v, %v", to, fi, err)
		}
	}
	if err := c.WriteFile(ctx, program, 0o644, 1000, 1000, strings.NewReader("own")); err != nil {
		t.Fatal(err)
	}
	if fi, err := c.Stat(ctx, program); err != nil || fi.Mode != 0o644 || fi.UID != 1000 {
		t.Errorf("%+v, %v", fi, err)
	}
	if err := c.WriteFile(ctx, dir+"/fresh", 0o644|guest.KeepMode, 1000, 1000, strings.NewReader("own")); err != nil {
		t.Fatal(err)
	}
	if fi, err := c.Stat(ctx, dir+"/fresh"); err != nil || fi.Mode != 0o644 || fi.UID != 1000 {
		t.Errorf("%+v, %v", fi, err)
	}
}

func TestLinuxKept(t *testing.T) {
	c := real(t)
	keptSuite(t, c)
	portSuite(t, c)
}

func TestGVisorKept(t *testing.T) {
	c := sandboxed(t)
	keptSuite(t, c)
	portSuite(t, c)
}
