package guest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/guest/agent"
	"github.com/bermhq/berm/internal/testkit"
)

// poke makes every kind of call at once and waits for all of them.
func poke(ctx context.Context, c *guest.Client) {
	calls := []func(){
		func() { c.Hello(ctx) },
		func() { c.Stat(ctx, "/x") },
		func() { c.List(ctx, "/", 3, 100) },
		func() { c.WriteFile(ctx, "/x", 0o644, 0, 0, strings.NewReader(strings.Repeat("x", 1<<20))) },
		func() {
			if r, err := c.ReadFile(ctx, "/x", 1<<20); err == nil {
				io.Copy(io.Discard, r)
				r.Close()
			}
		},
		func() {
			if r, err := c.Changes(ctx, "/"); err == nil {
				io.Copy(io.Discard, r)
				r.Close()
			}
		},
		func() { c.Usage(ctx) },
		func() { c.Processes(ctx) },
		func() { c.Ports(ctx) },
		func() { c.Signal(ctx, "p", 15) },
		func() {
			if p, err := c.Attach(ctx, "k", 5, true); err == nil {
				for err == nil {
					_, err = p.Chunk(ctx)
				}
				p.Info()
				p.Close()
			}
		},
		func() {
			if p, err := c.Wait(ctx, "p"); err == nil {
				for err == nil {
					_, _, err = p.Read(ctx)
				}
				p.Close()
			}
		},
		func() {
			if in, err := c.Stdin(ctx, "k"); err == nil {
				in.Write(make([]byte, 1<<20))
				in.Close()
			}
		},
		func() {
			if n, err := c.Dial(ctx, 1); err == nil {
				n.SetDeadline(time.Now().Add(200 * time.Millisecond))
				go n.Write(make([]byte, 1<<20))
				io.Copy(io.Discard, n)
				n.Close()
			}
		},
		func() {
			if w, err := c.Watch(ctx, "/", true); err == nil {
				for err == nil {
					_, err = w.Next(ctx)
				}
				w.Close()
			}
		},
		func() {
			p, err := c.Start(ctx, guest.Start{ID: "p", Args: []string{"cat"}, Stdin: true})
			if err != nil {
				return
			}
			go p.Write([]byte("hello"))
			for {
				if _, _, err := p.Read(ctx); err != nil {
					break
				}
			}
			p.Kill(ctx)
			p.Close()
		},
	}
	done := make(chan bool)
	for _, f := range calls {
		go func() { f(); done <- true }()
	}
	for range calls {
		<-done
	}
}

// within fails the test if f takes longer than d.
func within(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan bool)
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatalf("%s: still waiting after %v", what, d)
	}
}

func TestHostileGuests(t *testing.T) {
	for _, g := range testkit.HostileGuests() {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			c := guest.New(g.Dial(), guest.Options{MaxSkip: 1 << 20})
			within(t, 5*time.Second, "calls", func() { poke(ctx, c) })
			if g.Break {
				within(t, 5*time.Second, "the cut", func() { <-c.Done() })
				if err := c.Err(); !errors.Is(err, guest.ErrProtocol) {
					t.Errorf("Err = %v, want ErrProtocol", err)
				}
			}
			within(t, 5*time.Second, "Close", func() { c.Close() })
		})
	}
}

// serve runs an honest agent at the other end of a pipe.
func serve(tb testing.TB) net.Conn {
	h, g := net.Pipe()
	host := agent.NewLocal(tb.TempDir())
	tb.Cleanup(func() { host.Close() })
	go agent.Serve(context.Background(), g, host)
	return h
}

// session is a short conversation that uses every part of the protocol.
func session(ctx context.Context, c *guest.Client) error {
	if err := c.WriteFile(ctx, "/f", 0o644, 0, 0, strings.NewReader("text")); err != nil {
		return err
	}
	if _, err := c.List(ctx, "/", 1, 0); err != nil {
		return err
	}
	p, err := c.Start(ctx, guest.Start{ID: "p", Args: []string{"cat", "/f"}})
	if err != nil {
		return err
	}
	q, err := c.Start(ctx, guest.Start{ID: "q", Args: []string{"forks", "9", "0.001"}, Pids: 9})
	if err != nil {
		return err
	}
	for {
		if _, _, err := q.Read(ctx); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	if s := q.Seen(); len(s.Caps) != 1 || s.PidsPeak != 9 || s.Signal != 0 {
		return fmt.Errorf("Seen = %+v", s)
	}
	for {
		_, _, err := p.Read(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if _, err := c.Start(ctx, guest.Start{ID: "k", Args: []string{"cat"}, Keep: 8, Stdin: true}); err != nil {
		return err
	}
	in, err := c.Stdin(ctx, "k")
	if err != nil {
		return err
	}
	if _, err := in.Write([]byte("0123456789abcdef")); err != nil {
		return err
	}
	if err := in.Close(); err != nil {
		return err
	}
	k, err := c.Attach(ctx, "k", 1, true)
	if err != nil {
		return err
	}
	for at := int64(1); ; {
		ch, err := k.Chunk(ctx)
		if err == io.EOF && at == 16 {
			break
		}
		if err != nil {
			return err
		}
		if at += ch.Gap; ch.Offset != at || !strings.HasPrefix("0123456789abcdef"[at:], string(ch.Data)) {
			return fmt.Errorf("%+v, want what is at %d", ch, at)
		}
		at += int64(len(ch.Data))
	}
	if l, err := c.Processes(ctx); err != nil || len(l) != 1 {
		return cmp.Or(err, errors.New("wrong list"))
	}
	r, err := c.ReadFile(ctx, "/f", 0)
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err == nil && string(b) != "text" {
		err = errors.New("wrong content")
	}
	return err
}

// TestCut ends the stream after each byte of a session, in either direction.
func TestCut(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for ; ; n++ {
		c := guest.New(testkit.CutAfter(n)(serve(t)), guest.Options{})
		var err error
		within(t, 5*time.Second, "a session", func() { err = session(ctx, c) })
		c.Close()
		if err == nil {
			break
		}
		if !errors.Is(err, guest.ErrGone) || errors.Is(err, io.EOF) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		if n > 2000 {
			t.Fatal("a short session has no end: ", err)
		}
	}
	t.Logf("a session is %d bytes from the guest", n)
	for n := 0; n < 400; n++ {
		h, g := net.Pipe()
		host := agent.NewLocal(t.TempDir())
		served := make(chan error, 1)
		go func() { served <- agent.Serve(ctx, testkit.CutAfter(n)(g), host) }()
		c := guest.New(h, guest.Options{})
		within(t, 5*time.Second, "a session", func() { session(ctx, c) })
		c.Close()
		within(t, 5*time.Second, "Serve", func() { <-served })
		host.Close()
	}
}

func TestSlow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := guest.New(testkit.Slow(1, 10*time.Microsecond)(serve(t)), guest.Options{})
	defer c.Close()
	if err := session(ctx, c); err != nil {
		t.Error(err)
	}
}

// TestBusy opens more calls than a client may have.
func TestBusy(t *testing.T) {
	ctx := t.Context()
	c := guest.New(serve(t), guest.Options{MaxStreams: 3})
	defer c.Close()
	for i := range 3 {
		if _, err := c.Start(ctx, guest.Start{ID: string(rune('a' + i)), Args: []string{"sleep", "60"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Usage(ctx); !errors.Is(err, guest.ErrBusy) {
		t.Errorf("fourth call: %v", err)
	}
}

func FuzzClient(f *testing.F) {
	f.Add([]byte{})
	for stream := uint32(1); stream < 4; stream++ {
		for kind := byte(1); kind < 15; kind++ {
			f.Add(guest.AppendFrame(nil, 1, stream, kind, []byte("\x08\x02\x12\x01x")))
		}
	}
	e := guest.Exit{Code: 1, Caps: []string{"disk"}}
	r := guest.Reply{Body: e.Append(nil)}
	saw := guest.Exit{Caps: []string{"processes"}, PidsPeak: 128}
	event := guest.FileEvent{Path: "/x", Op: guest.OpWrite}
	listed := guest.ProcessInfo{ID: "x", OutputBytes: 7, Exit: e}
	ends := guest.Reply{Body: listed.Append(nil)}
	for stream := uint32(1); stream < 16; stream++ { // one of them is whatever it takes
		begun := guest.AppendFrame(nil, 1, stream, guest.KindData, nil)
		f.Add(guest.AppendFrame(begun[:len(begun):len(begun)], 1, stream, guest.KindGap, []byte{1}))
		f.Add(guest.AppendFrame(begun[:len(begun):len(begun)], 1, stream, guest.KindEnd, nil))
		f.Add(guest.AppendFrame(begun[:len(begun):len(begun)], 1, stream, guest.KindReply, ends.Append(nil)))
		for _, b := range [][]byte{event.Append(nil), listed.Append(nil)} {
			f.Add(guest.AppendFrame(begun[:len(begun):len(begun)], 1, stream, guest.KindData, append([]byte{byte(len(b))}, b...)))
		}
		f.Add(guest.AppendFrame(nil, 1, stream, guest.KindSeen, saw.Append(nil)))
		f.Add(guest.AppendFrame(nil, 1, stream, guest.KindSeen, e.Append(nil)))
	}
	f.Add(guest.AppendFrame(guest.AppendFrame(nil, 1, 1, guest.KindData, []byte("out")), 1, 1, guest.KindReply, r.Append(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn := testkit.Scripted(func(s *testkit.Script) {
			s.Greet()
			for range 15 {
				s.Open()
			}
			s.Write(b)
			s.Close()
		})
		c := guest.New(conn, guest.Options{Epoch: 1, Window: 64 << 10})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		within(t, 5*time.Second, "calls", func() { poke(ctx, c) })
		within(t, 5*time.Second, "Close", func() { c.Close() })
	})
}

// refusing starts nothing.
type refusing struct{ *agent.Local }

func (refusing) Start(guest.Start) (agent.Proc, error) { return nil, os.ErrNotExist }

func FuzzAgentFrames(f *testing.F) {
	marker := guest.AppendMarker(nil, 1, 2)
	f.Add(marker)
	for m := range 25 {
		if m == guest.MethodDial { // whoever listens on this machine is not part of the test
			continue
		}
		q := guest.FileRequest{Path: "/x", To: "/y", Limit: 10, Paths: []string{"."}}
		o := guest.Open{Method: m, Window: 1 << 16, Body: q.Append(nil)}
		b := guest.AppendFrame(marker[:len(marker):len(marker)], 1, 1, guest.KindOpen, o.Append(nil))
		b = guest.AppendFrame(b, 1, 1, guest.KindData, []byte("data"))
		b = guest.AppendFrame(b, 1, 1, guest.KindNote, []byte("\x08\x02"))
		f.Add(guest.AppendFrame(b, 1, 1, guest.KindEnd, nil))
		f.Add(guest.AppendFrame(b, 1, 1, guest.KindCancel, nil))
		p := guest.ProcessRequest{ID: "x", Offset: 3, Follow: true, Signal: 9, Rows: 1, CloseStdin: true}
		o.Body = p.Append(nil)
		b = guest.AppendFrame(marker[:len(marker):len(marker)], 1, 1, guest.KindOpen, o.Append(nil))
		f.Add(guest.AppendFrame(b, 1, 1, guest.KindEnd, nil))
	}
	f.Add(append([]byte("garbage"+guest.Magic[:9]+guest.Magic), marker...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, g := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- agent.Serve(context.Background(), g, refusing{agent.NewLocal(t.TempDir())}) }()
		go io.Copy(io.Discard, h)
		within(t, 5*time.Second, "the agent's reader", func() { h.Write(b) })
		h.Close()
		within(t, 5*time.Second, "Serve", func() { <-served })
	})
}
