package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

func newPool() *pool { return &pool{tenant: map[string]int64{}} }

// An answer that is written piece by piece is the one that was meant.
func TestAnswerPieces(t *testing.T) {
	for _, s := range []string{"", "plain\n", "\"\\\b\f\n\r\t\x00\x1f\x7f<>&\u2028\u2029é€𝄞\uFFFD", "bad \xff\xc3", strings.Repeat("€", 40000)} {
		p := newPool()
		o, err := newKept(1<<20, p, "a")
		if err != nil {
			t.Fatal(err)
		}
		o.write(sandbox.Stdout, []byte(s))
		o.write(sandbox.Stderr, []byte("e"+s))
		want := api.ExecAnswer{ExecResult: api.ExecResult{ExecID: "x", Ending: api.EndTimeout, CapsHit: []string{}}, TimedOut: true, DurationMS: 7}
		want.Stdout, want.StdoutBase64 = text([]byte(s))
		want.Stderr, want.StderrBase64 = text([]byte("e" + s))
		var b bytes.Buffer
		if err := o.answer(&b, want.ExecResult, 7*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		var got api.ExecAnswer
		if err := json.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatalf("%.100q: %v in %.300s", s, err, &b)
		}
		x, _ := json.Marshal(want)
		y, _ := json.Marshal(got)
		if !bytes.Equal(x, y) {
			t.Errorf("%.300s, want %.300s", y, x)
		}
		if o.free(); p.used != 0 || len(p.tenant) != 0 {
			t.Errorf("the pool lost %d bytes", p.used)
		}
	}
}

// An answer costs no second copy of the output, however much of it is escaped.
func TestAnswerIsNoCopy(t *testing.T) {
	o, err := newKept(1<<40, newPool(), "a")
	if err != nil {
		t.Fatal(err)
	}
	o.write(sandbox.Stdout, make([]byte, 20<<20))
	if n := o.size(); n != maxKept {
		t.Errorf("%d bytes are kept", n)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o.answer(io.Discard, api.ExecResult{}, 0)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("an answer of %d bytes took %d bytes of memory", o.size(), n)
	}
}

// When clients leave their answers unread, new commands are refused before they
// start, one tenant does not take all, and what runs keeps less.
func TestAnswerPool(t *testing.T) {
	p := newPool()
	fill := func(tenant string) (all []*kept) {
		for range 100 {
			o, err := newKept(maxKept, p, tenant)
			if err != nil {
				var ae *api.Error
				if !errors.As(err, &ae) || ae.Code != api.CodeRate || ae.RetryAfter == 0 || ae.Hint == "" {
					t.Errorf("%+v", err)
				}
				return all
			}
			o.write(sandbox.Stdout, make([]byte, maxKept))
			all = append(all, o)
		}
		t.Fatal("there is no bound")
		return nil
	}
	a := fill("a")
	if p.used > poolTenant {
		t.Errorf("one tenant has %d bytes", p.used)
	}
	b := fill("b")
	if len(b) < 8 {
		t.Errorf("another tenant gets %d answers", len(b))
	}
	for i := range 20 {
		a[0].write(sandbox.Stderr, make([]byte, 1<<20))
		b[i%len(b)].write(sandbox.Stderr, make([]byte, 1<<20))
	}
	if p.used > poolBytes || p.tenant["a"] > poolTenant {
		t.Errorf("%d bytes, %d of one tenant", p.used, p.tenant["a"])
	}
	for _, o := range append(a, b...) {
		o.free()
		o.write(sandbox.Stdout, []byte("late"))
	}
	if p.used != 0 {
		t.Errorf("%d bytes are left", p.used)
	}
}

// A client that takes its answer drop by drop is cut.
func TestBrisk(t *testing.T) {
	var b bytes.Buffer
	w := &brisk{&b, time.Now().Add(time.Hour)}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	w.until = time.Now().Add(-time.Second)
	if _, err := w.Write([]byte("y")); err == nil || b.String() != "x" {
		t.Error("it goes on")
	}
}
