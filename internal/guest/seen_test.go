package guest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/testkit"
)

// started runs f as the guest of one process.
func started(t *testing.T, f func(s *testkit.Script, stream uint32)) (*guest.Client, *guest.Process) {
	t.Helper()
	c := guest.New(testkit.Scripted(func(s *testkit.Script) {
		s.Greet()
		f(s, s.Open())
	}), guest.Options{})
	t.Cleanup(func() { c.Close() })
	p, err := c.Start(t.Context(), guest.Start{ID: "p", Args: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

// TestSeen: the latest sighting is there while the process runs and after the
// stream broke; an exit replaces it.
func TestSeen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	say := func(s *testkit.Script, stream uint32) {
		for _, e := range []guest.Exit{{PidsPeak: 3}, {PidsPeak: 20, Caps: []string{"processes"}, MemoryPeak: 5}} {
			s.Frame(stream, guest.KindSeen, e.Append(nil))
		}
		s.Frame(stream, guest.KindData, []byte("."))
	}
	more := make(chan bool)
	_, p := started(t, func(s *testkit.Script, stream uint32) {
		say(s, stream)
		<-more
		s.Close()
	})
	check := func(when string) {
		if s := p.Seen(); s.PidsPeak != 20 || s.MemoryPeak != 5 || !slices.Equal(s.Caps, []string{"processes"}) {
			t.Errorf("%s: %+v", when, s)
		}
	}
	if _, _, err := p.Read(ctx); err != nil {
		t.Fatal(err)
	}
	check("running")
	close(more)
	if _, _, err := p.Read(ctx); !errors.Is(err, guest.ErrGone) {
		t.Fatal(err)
	}
	check("broken")
	if e := p.Exit(); len(e.Caps) != 0 || e.PidsPeak != 0 {
		t.Errorf("Exit = %+v", e)
	}
	_, p = started(t, func(s *testkit.Script, stream uint32) {
		say(s, stream)
		e := guest.Exit{Code: 3, PidsPeak: 21, Caps: []string{"disk"}}
		r := guest.Reply{Body: e.Append(nil)}
		s.Frame(stream, guest.KindReply, r.Append(nil))
	})
	for err := error(nil); err == nil; {
		_, _, err = p.Read(ctx)
	}
	if s := p.Seen(); s.PidsPeak != 21 || s.MemoryPeak != 0 || s.Code != 0 || !slices.Equal(s.Caps, []string{"disk"}) {
		t.Errorf("after the exit: %+v", s)
	}
}

// TestBadSightings: a guest is cut for what no agent would say of a process
// that runs, and for saying it too often.
func TestBadSightings(t *testing.T) {
	good := guest.Exit{PidsPeak: 1}
	for name, f := range map[string]func(*testkit.Script, uint32){
		"exit code": func(s *testkit.Script, stream uint32) {
			s.Frame(stream, guest.KindSeen, (&guest.Exit{Code: 1}).Append(nil))
		},
		"ending": func(s *testkit.Script, stream uint32) {
			s.Frame(stream, guest.KindSeen, (&guest.Exit{EndedBy: "memory"}).Append(nil))
		},
		"unknown cap": func(s *testkit.Script, stream uint32) {
			s.Frame(stream, guest.KindSeen, (&guest.Exit{Caps: []string{"timeout"}}).Append(nil))
		},
		"malformed": func(s *testkit.Script, stream uint32) { s.Frame(stream, guest.KindSeen, []byte{0x80}) },
		"long":      func(s *testkit.Script, stream uint32) { s.Frame(stream, guest.KindSeen, make([]byte, 257)) },
		"unknown stream": func(s *testkit.Script, stream uint32) {
			s.Frame(stream+1, guest.KindSeen, good.Append(nil))
		},
		"flood": func(s *testkit.Script, stream uint32) {
			for s.Frame(stream, guest.KindSeen, good.Append(nil)) == nil {
			}
		},
		"after the exit": func(s *testkit.Script, stream uint32) {
			s.Frame(stream, guest.KindReply, nil)
			s.Frame(stream, guest.KindSeen, good.Append(nil))
		},
	} {
		c, _ := started(t, f)
		within(t, 5*time.Second, name, func() { <-c.Done() })
		if !errors.Is(c.Err(), guest.ErrProtocol) {
			t.Errorf("%s: %v", name, c.Err())
		}
	}
	c := guest.New(testkit.Scripted(func(s *testkit.Script) { // of a call that is no process
		s.Greet()
		s.Frame(s.Open(), guest.KindSeen, good.Append(nil))
	}), guest.Options{})
	defer c.Close()
	if _, err := c.Usage(t.Context()); !errors.Is(err, guest.ErrProtocol) {
		t.Errorf("usage: %v", err)
	}
}
