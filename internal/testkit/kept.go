package testkit

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// testKept starts what outlives its stream, and comes back to it: over another
// stream, where streams outlive their reader.
func testKept(t *testing.T, b *bench) {
	i, c := b.start(t, b.spec())
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	s := b.command(t, "cat")
	s.Stdin, s.Keep = true, 8
	if _, err := c.Start(ctx, s); err != nil {
		t.Fatal(err)
	}
	in, err := c.Stdin(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "0123456789")
	if err := in.Leave(); err != nil {
		t.Fatal(err)
	}
	for { // until all of it came out
		l, err := c.Processes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(l) == 1 && l[0].ID == s.ID && l[0].Running && l[0].Kept && l[0].OutputBytes == 10 {
			break
		}
	}
	if b.Restart != nil {
		c.Close()
		conn, err := i.Agent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		c = guest.New(conn, guest.Options{})
		defer c.Close()
	}
	w, err := c.Wait(ctx, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Attach(ctx, s.ID, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if in, err = c.Stdin(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for gap := int64(0); ; {
		ch, err := p.Chunk(ctx)
		if err == io.EOF {
			if got.String() != "1236789" || gap != 2 {
				t.Errorf("%q and a gap of %d", got.String(), gap)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got.Write(ch.Data)
		gap += ch.Gap
	}
	for err = nil; err == nil; {
		_, _, err = w.Read(ctx)
	}
	if err != io.EOF || w.Exit().Signal != 0 || w.Exit().Code != 0 {
		t.Errorf("%+v, %v", w.Exit(), err)
	}
}

// testWatch hears of what is done inside.
func testWatch(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	dir := b.Dir
	if dir == "" {
		dir = api.Workspace
	}
	w, err := c.Watch(ctx, dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := c.WriteFile(ctx, dir+"/new/file", 0o644, b.UID, b.GID, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for {
		e, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Op == guest.OpCreate && e.Path == dir+"/new/file" {
			return
		}
	}
}

// testPorts has a loopback to connect to, on which nobody listens.
func testPorts(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	if _, err := c.Ports(ctx); err != nil {
		t.Error(err)
	}
	if n, err := c.Dial(ctx, 1); err == nil {
		n.Close()
		t.Error("somebody listens on port 1")
	} else if !guest.IsRefusal(err) || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}
