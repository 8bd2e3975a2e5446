package guest

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestMagic(t *testing.T) {
	for i := range len(Magic) {
		if Magic[i] < 0x80 {
			t.Errorf("byte %d of the magic could be part of a header", i)
		}
		if i > 0 && strings.HasPrefix(Magic, Magic[i:]) {
			t.Errorf("the magic overlaps itself at %d", i)
		}
	}
	if MaxEpoch>>24 != 0 || MaxFrame>>16 >= 0x80 {
		t.Error("a header could be part of the magic")
	}
}

// TestSplit: whatever the data, no run of frames holds the magic.
func TestSplit(t *testing.T) {
	for _, body := range []string{
		"", "plain", Magic, Magic[2:], "x" + Magic, Magic + Magic + Magic, Magic[:15],
		strings.Repeat(Magic[2:], 5), Magic[:8] + Magic[2:] + Magic[8:], Magic[9:] + Magic,
	} {
		var wire, back []byte
		for b := []byte(body); ; {
			n := splitAt(b)
			// The worst length there is: its low bytes are the magic's first.
			wire = AppendFrame(wire, MaxEpoch, 1<<32-1, KindData, b[:n])
			wire[len(wire)-n-2], wire[len(wire)-n-1] = Magic[0], Magic[1]
			back = append(back, b[:n]...)
			if b = b[n:]; len(b) == 0 {
				break
			}
		}
		if string(back) != body {
			t.Errorf("%q became %q", body, back)
		}
		if bytes.Contains(wire, []byte(Magic)) {
			t.Errorf("%q: the wire holds the magic", body)
		}
	}
}

// TestFrameReader gives each stream whole and byte by byte.
func TestFrameReader(t *testing.T) {
	m1, m2 := AppendMarker(nil, 1, 11), AppendMarker(nil, 2, 22)
	hi := AppendFrame(nil, 1, 5, KindData, []byte("hi"))
	yo := AppendFrame(nil, 2, 6, KindData, []byte("yo"))
	long := AppendFrame(nil, 1, 5, KindData, make([]byte, MaxFrame))
	join := func(bs ...[]byte) (out []byte) {
		for _, b := range bs {
			out = append(out, b...)
		}
		return out
	}
	for _, tt := range []struct {
		name string
		in   []byte
		want string // A attach, then epoch; D data
	}{
		{"plain", join(m1, hi, hi), "A1 Dhi Dhi"},
		{"frames before any marker", join(hi, hi), ""},
		{"garbage first", join([]byte("GET / HTTP/1.1\r\n\r\n"), m1, hi), "A1 Dhi"},
		{"second attach", join(m1, hi, m2, yo), "A1 Dhi A2 Dyo"},
		{"cut in a header", join(m1, hi[:7], m2, yo), "A1 A2 Dyo"},
		{"cut in a body", join(m1, long[:9000], m2, yo), "A1 A2 Dyo"},
		{"cut in the marker", join(m1[:20], m2, yo), "A2 Dyo"},
		{"cut in the magic", join(m1[:9], m2, yo), "A2 Dyo"},
		{"older epoch", join(m1, yo, hi, m2, yo), "A1 A2 Dyo"},
		{"length too long", join(m1, []byte("\x00\x00\x00\x01\x00\x00\x00\x05\x04\x00\x04\x00\x01"), m2, yo), "A1 A2 Dyo"},
		{"epoch 0", join(AppendMarker(nil, 0, 1), m1, hi), "A1 Dhi"},
		{"epoch too large", join(AppendMarker(nil, MaxEpoch+1, 1), m1, hi), "A1 Dhi"},
		{"two markers", join(m1, m2, yo), "A1 A2 Dyo"},
		{"longest frame", join(m1, long, hi), "A1 Dlong Dhi"},
	} {
		for how, r := range map[string]io.Reader{"whole": bytes.NewReader(tt.in), "byte by byte": iotest.OneByteReader(bytes.NewReader(tt.in))} {
			fr := NewFrameReader(r)
			var got []string
			for {
				f, err := fr.Next()
				if err != nil {
					break
				}
				switch {
				case f.Kind == KindAttach:
					got = append(got, "A"+string(rune('0'+f.Epoch)))
				case len(f.Body) == MaxFrame:
					got = append(got, "Dlong")
				default:
					got = append(got, "D"+string(f.Body))
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("%s, %s: %q, want %q", tt.name, how, s, tt.want)
			}
		}
	}
}

func TestInbox(t *testing.T) {
	in := NewInbox(1000)
	put := func(kind byte, s string) bool {
		c, ok := in.Reserve(kind, len(s))
		if ok {
			copy(c.B, s)
			in.Put(c)
		}
		return ok
	}
	for _, k := range []byte{KindData, KindData, KindDataErr} {
		if !put(k, "abc") {
			t.Fatal("refused within the window")
		}
	}
	if put(KindData, strings.Repeat("x", 1000-3*131-127)) {
		t.Error("accepted beyond the window")
	}
	c, ok, _ := in.Take()
	if !ok || string(c.B) != "abcabc" {
		t.Fatalf("%q", c.B)
	}
	if n := in.Done(c); n != 262 {
		t.Errorf("granted %d, want 262", n)
	}
	c, _, _ = in.Take()
	if c.Kind != KindDataErr || in.Done(c) != 0 {
		t.Error("a small rest was granted at once")
	}
	in.End()
	if _, ok, ended := in.Take(); ok || !ended {
		t.Error("not ended")
	}
}
