package agent_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/guest/agent"
)

// again returns a function that attaches anew to one machine in memory.
func again(t *testing.T) func() *guest.Client {
	host := agent.NewLocal(t.TempDir())
	a := agent.New(host)
	t.Cleanup(func() { host.Close() })
	return func() *guest.Client {
		h, g := net.Pipe()
		go a.Serve(context.Background(), g)
		c := guest.New(h, guest.Options{})
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func begin(t *testing.T, c *guest.Client, s guest.Start) *guest.Process {
	t.Helper()
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// output reads what is kept, and says where the gaps are.
func output(t *testing.T, c *guest.Client, id string, offset int64, follow bool) (string, *guest.Process) {
	t.Helper()
	ctx := ctxFor(t, 20*time.Second)
	p, err := c.Attach(ctx, id, offset, follow)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for at := offset; ; {
		ch, err := p.Chunk(ctx)
		if err == io.EOF {
			return b.String(), p
		}
		if err != nil {
			t.Fatal(err)
		}
		if ch.Gap > 0 {
			b.WriteString("[" + strconv.FormatInt(ch.Gap, 10) + "]")
		}
		if ch.Offset != at+ch.Gap {
			t.Errorf("%q at %d, want %d", ch.Data, ch.Offset, at+ch.Gap)
		}
		at = ch.Offset + int64(len(ch.Data))
		b.Write(ch.Data)
	}
}

func TestKept(t *testing.T) {
	attach := again(t)
	c := attach()
	ctx := ctxFor(t, 20*time.Second)
	p := begin(t, c, guest.Start{ID: "e", Args: []string{"echo", "hello"}, Keep: 1000})
	if out, _ := drain(t, ctx, p); out != "" || p.Exit().Code != 0 {
		t.Errorf("%q, %+v", out, p.Exit())
	}
	q := begin(t, c, guest.Start{ID: "long", Args: []string{"cat"}, Keep: 8, Stdin: true})
	io.WriteString(q, "0123456789")
	for began := false; ; { // then across a new attachment, and another stream
		l, err := c.Processes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) != 2 || l[0].ID != "e" || l[0].Running || !l[0].Kept || l[0].OutputBytes != 6 || l[1].ID != "long" || !l[1].Running || l[1].PID <= 0 {
			t.Fatalf("%+v", l)
		}
		if l[1].OutputBytes == 10 && began {
			break
		} else if l[1].OutputBytes == 10 {
			c.Close()
			c, began = attach(), true
		}
	}
	for _, follow := range []bool{false, true} {
		if out, p := output(t, c, "e", 0, follow); out != "hello\n" || p.Info().Running || p.Info().OutputBytes != 6 {
			t.Errorf("%q, %+v", out, p.Info())
		}
	}
	for offset, want := range map[int64]string{0: "0123[2]6789", 2: "23[2]6789", 4: "[2]6789", 5: "[1]6789", 6: "6789", 10: "", 99: ""} {
		if out, p := output(t, c, "long", offset, false); out != want || !p.Info().Running {
			t.Errorf("from %d: %q, want %q", offset, out, want)
		}
	}
	// Whoever waits hears of the exit, whoever follows of the end.
	w, err := c.Wait(ctx, "long")
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.Stdin(ctx, "long")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "ab")
	if err := in.Leave(); err != nil {
		t.Fatal(err)
	}
	if in, err = c.Stdin(ctx, "long"); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "cd")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if out, p := output(t, c, "long", 12, true); out != "cd" || p.Exit().Code != 0 || p.Info().OutputBytes != 14 {
		t.Errorf("%q, %+v", out, p.Info())
	}
	if drain(t, ctx, w); w.Exit().Code != 0 || w.Exit().Signal != 0 {
		t.Errorf("%+v", w.Exit())
	}
	w, err = c.Wait(ctx, "long") // and later
	if err != nil {
		t.Fatal(err)
	}
	drain(t, ctx, w)
	// An id is used once.
	r := begin(t, c, guest.Start{ID: "e", Args: []string{"true"}})
	if drain(t, ctx, r); r.Exit().Errno != int(syscall.EEXIST) {
		t.Errorf("%+v", r.Exit())
	}
	for what, err := range map[string]error{
		"attach": second(c.Attach(ctx, "none", 0, false)), "wait": second(c.Wait(ctx, "none")),
		"stdin": second(c.Stdin(ctx, "none")), "signal": c.Signal(ctx, "none", 15),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !guest.IsRefusal(err) {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
	if err := c.Signal(ctx, "long", 15); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal of what has ended: %v", err)
	}
	// What could not be started is kept as well.
	n := begin(t, c, guest.Start{ID: "no", Args: []string{"nope"}, Keep: 10})
	drain(t, ctx, n)
	if _, p := output(t, c, "no", 0, true); p.Exit().NotStarted == "" || n.Exit().NotStarted != p.Exit().NotStarted {
		t.Errorf("%+v", p.Exit())
	}
}

func second[T any](_ T, err error) error { return err }

// TestPlainLeft finds what an attachment left behind that was not kept.
func TestPlainLeft(t *testing.T) {
	attach := again(t)
	c := attach()
	ctx := ctxFor(t, 20*time.Second)
	begin(t, c, guest.Start{ID: "p", Args: []string{"sleep", "60"}})
	if _, err := c.Usage(ctx); err != nil {
		t.Fatal(err)
	}
	c = attach()
	w, err := c.Wait(ctx, "p")
	if err != nil {
		t.Fatal(err)
	}
	if l, err := c.Processes(ctx); err != nil || len(l) != 1 || l[0].ID != "p" || !l[0].Running || l[0].Kept {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := c.Attach(ctx, "p", 0, true); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("attach to what is not kept: %v", err)
	}
	if err := c.Signal(ctx, "p", 15); err != nil {
		t.Fatal(err)
	}
	if drain(t, ctx, w); w.Exit().Signal != 15 {
		t.Errorf("%+v", w.Exit())
	}
	if l, err := c.Processes(ctx); err != nil || len(l) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestKeptEnds: by time and by too much output the agent itself ends a process,
// kept or not, and a kept one goes on when its call is given up.
func TestKeptEnds(t *testing.T) {
	attach := again(t)
	c := attach()
	ctx := ctxFor(t, 20*time.Second)
	for _, tt := range []struct {
		s    guest.Start
		want string
	}{
		{guest.Start{ID: "late", Args: []string{"sleep", "60"}, Keep: 10, TimeoutMS: 20}, guest.EndedTimeout},
		{guest.Start{ID: "plain", Args: []string{"sleep", "60"}, TimeoutMS: 20}, guest.EndedTimeout},
		{guest.Start{ID: "flood", Args: []string{"yes"}, Keep: 100, Flood: 1 << 20}, guest.EndedOutput},
		{guest.Start{ID: "early", Args: []string{"true"}, Keep: 10, TimeoutMS: 10000}, ""},
	} {
		p := begin(t, c, tt.s)
		if drain(t, ctx, p); p.Exit().EndedBy != tt.want {
			t.Errorf("%s: %+v", tt.s.ID, p.Exit())
		}
	}
	p := begin(t, c, guest.Start{ID: "on", Args: []string{"sleep", "60"}, Keep: 10})
	p.Close()
	if _, _, err := p.Read(ctx); !errors.Is(err, syscall.ECANCELED) {
		t.Errorf("Read after Close: %v", err)
	}
	w, err := c.Wait(ctx, "on")
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := c.Kill(ctx, "on"); err != nil {
		t.Fatal(err)
	}
	if _, p := output(t, c, "on", 0, true); p.Exit().EndedBy != guest.EndedKilled {
		t.Errorf("%+v", p.Exit())
	}
}

// TestFollowers: a follower that moves loses nothing, however slow; one that
// does not holds up nobody for long; nobody else is held up.
func TestFollowers(t *testing.T) {
	attach := again(t)
	c := attach()
	ctx := ctxFor(t, 30*time.Second)
	begin(t, c, guest.Start{ID: "y", Args: []string{"yes", "0123456789abcde"}, Keep: 1 << 10})
	var got int64
	for i := 0; ; i++ { // until it is certain that followers are there in time
		p, err := c.Attach(ctx, "y", got, true)
		if err != nil {
			t.Fatal(err)
		}
		ch, err := p.Chunk(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = ch.Offset + int64(len(ch.Data))
		for range 200 { // more than any window and log together hold
			ch, err := p.Chunk(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ch.Gap != 0 && got != 512 { // after the head there may be one
				t.Fatalf("a gap of %d at %d", ch.Gap, ch.Offset)
			}
			for i, x := range ch.Data {
				if want := "0123456789abcde\n"[(ch.Offset+int64(i))%16]; x != want {
					t.Fatalf("%q at %d, want %q", x, ch.Offset+int64(i), want)
				}
			}
			got = ch.Offset + int64(len(ch.Data))
		}
		p.Close()
		if i == 3 {
			break
		}
	}
	if err := c.Kill(ctx, "y"); err != nil {
		t.Fatal(err)
	}
	// At most so many.
	begin(t, c, guest.Start{ID: "quiet", Args: []string{"sleep", "60"}, Keep: 1 << 10})
	for range 32 {
		if _, err := c.Attach(ctx, "quiet", 0, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Attach(ctx, "quiet", 0, true); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("one follower too many: %v", err)
	}
	c.Kill(ctx, "quiet")
}

// TestFollowersAll: those who are there in time miss nothing, each at its own
// pace, and hear the same end.
func TestFollowersAll(t *testing.T) {
	c := again(t)()
	ctx := ctxFor(t, 30*time.Second)
	begin(t, c, guest.Start{ID: "y", Args: []string{"cat"}, Stdin: true, Keep: 1 << 10})
	type end struct {
		n   int64
		err error
	}
	ends := make(chan end)
	for i := range 4 {
		p, err := c.Attach(ctx, "y", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			var n int64
			for {
				ch, err := p.Chunk(ctx)
				if err == io.EOF && p.Info().OutputBytes == n {
					err = nil
				}
				if err != nil || len(ch.Data) == 0 {
					ends <- end{n, err}
					return
				}
				if ch.Gap != 0 || ch.Offset != n {
					ends <- end{n, errors.New("a gap")}
					return
				}
				for k, x := range ch.Data {
					if x != "0123456789abcde\n"[(ch.Offset+int64(k))%16] {
						ends <- end{n, errors.New("other bytes")}
						return
					}
				}
				n = ch.Offset + int64(len(ch.Data))
				for range i * 50 { // slower
					runtime.Gosched()
				}
			}
		}()
	}
	in, err := c.Stdin(ctx, "y")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, strings.Repeat("0123456789abcde\n", 1<<18)); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if e := <-ends; e.err != nil || e.n != 4<<20 {
			t.Errorf("%d bytes, %v", e.n, e.err)
		}
	}
}

// TestEndedBound: so many are kept, the newest.
func TestEndedBound(t *testing.T) {
	c := again(t)()
	ctx := ctxFor(t, 20*time.Second)
	for i := range 70 {
		drain(t, ctx, begin(t, c, guest.Start{ID: "e" + strconv.Itoa(i), Args: []string{"true"}, Keep: 10}))
	}
	l, err := c.Processes(ctx)
	if err != nil || len(l) != 64 || l[0].ID != "e6" || l[63].ID != "e69" {
		t.Errorf("%d, %v", len(l), err)
	}
	for i := range 8 { // a part of what memory there is
		drain(t, ctx, begin(t, c, guest.Start{ID: "m" + strconv.Itoa(i), Args: []string{"yes"}, Keep: 1 << 20, Flood: 2 << 20, MemoryBytes: 64 << 20}))
	}
	if l, err = c.Processes(ctx); err != nil || len(l) != 1 || l[0].ID != "m7" {
		t.Errorf("%+v, %v", l, err)
	}
}
