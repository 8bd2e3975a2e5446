package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/testkit"
)

// TestLies: a guest is cut for what no agent would say in the calls on kept
// processes, connections and watches.
func TestLies(t *testing.T) {
	reply := func(m interface{ Append([]byte) []byte }) []byte {
		r := guest.Reply{Body: m.Append(nil)}
		return r.Append(nil)
	}
	entry := func(b []byte) []byte { return append(guest.AppendCredit(nil, len(b)), b...) }
	attach := func(ctx context.Context, c *guest.Client) error {
		p, err := c.Attach(ctx, "x", 1000, true)
		for err == nil {
			_, err = p.Chunk(ctx)
		}
		return err
	}
	wait := func(ctx context.Context, c *guest.Client) error {
		p, err := c.Wait(ctx, "x")
		for err == nil {
			_, _, err = p.Read(ctx)
		}
		return err
	}
	start := func(ctx context.Context, c *guest.Client) error {
		p, err := c.Start(ctx, guest.Start{ID: "x", Args: []string{"x"}})
		for err == nil {
			_, _, err = p.Read(ctx)
		}
		return err
	}
	kept := func(ctx context.Context, c *guest.Client) error {
		p, err := c.Start(ctx, guest.Start{ID: "x", Args: []string{"x"}, Keep: 10})
		for err == nil {
			_, _, err = p.Read(ctx)
		}
		return err
	}
	list := func(ctx context.Context, c *guest.Client) error { _, err := c.Processes(ctx); return err }
	ports := func(ctx context.Context, c *guest.Client) error { _, err := c.Ports(ctx); return err }
	stdin := func(ctx context.Context, c *guest.Client) error {
		in, err := c.Stdin(ctx, "x")
		for err == nil {
			_, err = in.Write(make([]byte, 1<<20))
		}
		return err
	}
	dial := func(ctx context.Context, c *guest.Client) error {
		n, err := c.Dial(ctx, 80)
		for err == nil {
			_, err = n.Read(make([]byte, 1))
			if err == io.EOF { // one direction
				_, err = n.Write(make([]byte, 1<<20))
			}
		}
		return err
	}
	watch := func(ctx context.Context, c *guest.Client) error {
		w, err := c.Watch(ctx, "/", true)
		for err == nil {
			_, err = w.Next(ctx)
		}
		return err
	}
	gap := func(b ...byte) func(*testkit.Script, uint32) {
		return func(s *testkit.Script, id uint32) { s.Frame(id, guest.KindGap, b) }
	}
	frame := func(kind byte, b []byte) func(*testkit.Script, uint32) {
		return func(s *testkit.Script, id uint32) { s.Frame(id, kind, b) }
	}
	twice := func(kind byte, b []byte, then byte, after []byte) func(*testkit.Script, uint32) {
		return func(s *testkit.Script, id uint32) { s.Frame(id, kind, b); s.Frame(id, then, after) }
	}
	endless := func(b []byte) func(*testkit.Script, uint32) {
		return func(s *testkit.Script, id uint32) {
			for s.Frame(id, guest.KindData, b) == nil {
			}
		}
	}
	listed := guest.ProcessInfo{ID: "x", Args: []string{"a"}, Running: true}
	ran := guest.ProcessInfo{ID: "x", Running: true, Exit: guest.Exit{PidsPeak: 1}}
	ran.Exit.Code = 1
	for _, tt := range []struct {
		name string
		call func(context.Context, *guest.Client) error
		say  func(*testkit.Script, uint32)
	}{
		{"empty gap", attach, gap()},
		{"gap of nothing", attach, gap(0)},
		{"half a gap", attach, gap(0x80)},
		{"long gap", attach, gap(make([]byte, 11)...)},
		{"gap beyond all", attach, gap(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)},
		{"gaps beyond all", attach, func(s *testkit.Script, id uint32) {
			for s.Frame(id, guest.KindGap, guest.AppendCredit(nil, 1<<59)) == nil {
			}
		}},
		{"output beyond the window", attach, endless(make([]byte, 200<<10))},
		{"gaps beyond the window", func(ctx context.Context, c *guest.Client) error {
			if _, err := c.Attach(ctx, "x", 0, true); err != nil {
				return err
			}
			<-c.Done()
			return c.Err()
		}, func(s *testkit.Script, id uint32) {
			for s.Frame(id, guest.KindGap, []byte{1}) == nil {
			}
		}},
		{"end of output", attach, frame(guest.KindReply, reply(&ran))},
		{"half-close of output", attach, frame(guest.KindEnd, nil)},
		{"gap in a start", start, gap(1)},
		{"output of a kept start", kept, frame(guest.KindDataErr, []byte("x"))},
		{"refused start", start, frame(guest.KindReply, (&guest.Reply{Errno: 2}).Append(nil))},
		{"output of a wait", wait, frame(guest.KindData, []byte("x"))},
		{"exit of a wait", wait, frame(guest.KindReply, reply(&guest.Exit{Code: 300}))},
		{"sightings of a wait", wait, func(s *testkit.Script, id uint32) {
			s.Frame(id, guest.KindData, nil)
			for s.Frame(id, guest.KindSeen, (&guest.Exit{PidsPeak: 1}).Append(nil)) == nil {
			}
		}},
		{"sighting of an attach", attach, frame(guest.KindSeen, (&guest.Exit{PidsPeak: 1}).Append(nil))},
		{"endless list", list, endless(bytes.Repeat(entry(listed.Append(nil)), 1000))},
		{"endless small list", list, endless(bytes.Repeat([]byte{0}, 2000))},
		{"malformed entry", list, frame(guest.KindData, entry([]byte{0xff}))},
		{"long entry", list, frame(guest.KindData, guest.AppendCredit(nil, 1<<20))},
		{"long length", list, frame(guest.KindData, bytes.Repeat([]byte{0xff}, 11))},
		{"half an entry", list, twice(guest.KindData, []byte{5, 1}, guest.KindReply, reply(&guest.Exit{}))},
		{"stderr of a list", list, frame(guest.KindDataErr, nil)},
		{"output of stdin", stdin, frame(guest.KindData, []byte("x"))},
		{"credit of stdin", stdin, twice(guest.KindData, nil, guest.KindCredit, guest.AppendCredit(nil, 1<<29))},
		{"stderr of a connection", dial, frame(guest.KindDataErr, nil)},
		{"gap in a connection", dial, gap(1)},
		{"end twice", dial, twice(guest.KindEnd, nil, guest.KindEnd, nil)},
		{"end with a word", dial, frame(guest.KindEnd, []byte("x"))},
		{"data after the end", dial, twice(guest.KindEnd, nil, guest.KindData, []byte("x"))},
		{"connection beyond the window", dial, endless(make([]byte, 200<<10))},
		{"half-close of ports", ports, frame(guest.KindEnd, nil)},
		{"no port", ports, frame(guest.KindReply, (&guest.Reply{Body: []byte{8, 0}}).Append(nil))},
		{"data of ports", ports, frame(guest.KindData, nil)},
		{"unknown event", watch, frame(guest.KindData, entry((&guest.FileEvent{Path: "/x", Op: "open"}).Append(nil)))},
		{"relative event", watch, frame(guest.KindData, entry((&guest.FileEvent{Path: "x", Op: "write"}).Append(nil)))},
		{"long event", watch, frame(guest.KindData, guest.AppendCredit(nil, 1<<20))},
		{"stderr of a watch", watch, frame(guest.KindDataErr, nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c := guest.New(testkit.Scripted(func(s *testkit.Script) {
				s.Greet()
				tt.say(s, s.Open())
			}), guest.Options{})
			defer c.Close()
			if err := tt.call(ctx, c); err == nil || ctx.Err() != nil {
				t.Errorf("the call: %v", err)
			}
			within(t, 5*time.Second, "the cut", func() { <-c.Done() })
			if !errors.Is(c.Err(), guest.ErrProtocol) {
				t.Errorf("%v", c.Err())
			}
		})
	}
}

// TestChunks: offsets are counted here, from what arrives; the guest has no say
// but in gaps.
func TestChunks(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c := guest.New(testkit.Scripted(func(s *testkit.Script) {
		s.Greet()
		id := s.Open()
		s.Frame(id, guest.KindGap, guest.AppendCredit(nil, 5))
		s.Frame(id, guest.KindGap, guest.AppendCredit(nil, 300))
		s.Frame(id, guest.KindData, []byte("ab"))
		s.Frame(id, guest.KindData, nil)
		s.Frame(id, guest.KindDataErr, []byte("c"))
		s.Frame(id, guest.KindGap, []byte{7})
		i := guest.ProcessInfo{ID: "x", Kept: true, OutputBytes: 315, Exit: guest.Exit{Code: 4}}
		r := guest.Reply{Body: i.Append(nil)}
		s.Frame(id, guest.KindReply, r.Append(nil))
	}), guest.Options{})
	defer c.Close()
	p, err := c.Attach(ctx, "x", 100, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []guest.Chunk{
		{Stream: guest.Stdout, Offset: 405, Gap: 305, Data: []byte("ab")},
		{Stream: guest.Stderr, Offset: 407, Data: []byte("c")},
		{Stream: guest.Stdout, Offset: 415, Gap: 7},
	} {
		ch, err := p.Chunk(ctx)
		if err != nil || ch.Stream != want.Stream || ch.Offset != want.Offset || ch.Gap != want.Gap || !bytes.Equal(ch.Data, want.Data) {
			t.Errorf("%+v, %v; want %+v", ch, err, want)
		}
	}
	if _, err := p.Chunk(ctx); err != io.EOF || p.Exit().Code != 4 || p.Info().OutputBytes != 315 {
		t.Errorf("%v, %+v", err, p.Info())
	}
}
