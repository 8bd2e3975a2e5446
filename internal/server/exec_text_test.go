package server

import (
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
)

// collect cuts in into chunks of step bytes, alternating with a byte of the
// other stream, and puts what comes out together again.
func collect(t testing.TB, in string, step int, other bool) (out, errs string, raw []byte) {
	t.Helper()
	next := int64(-1)
	x := texter{emit: func(stream string, p outPiece) error {
		if !utf8.ValidString(p.Chunk) {
			t.Fatalf("%q is not UTF-8", p.Chunk)
		}
		if b := appendASCII(nil, p); len(b) > 2*maxPiece {
			t.Fatalf("an event of %d bytes", len(b))
		}
		if stream == "stderr" {
			errs += p.Chunk
			return nil
		}
		if !other && next >= 0 && p.Offset != next {
			t.Fatalf("offset %d, want %d", p.Offset, next)
		}
		out += p.Chunk
		b := []byte(p.Chunk)
		if p.Base64 != "" {
			b, _ = base64.StdEncoding.DecodeString(p.Base64)
		}
		raw = append(raw, b...)
		next = p.Offset + int64(len(b))
		return nil
	}}
	var at int64
	for s := in; s != ""; {
		n := min(step, len(s))
		x.chunk(api.Chunk{Stream: "stdout", Offset: at, Data: []byte(s[:n])})
		s, at = s[n:], at+int64(n)
		if other {
			x.chunk(api.Chunk{Stream: "stderr", Offset: at, Data: []byte("e")})
			at++
		}
	}
	if err := x.end(); err != nil {
		t.Fatal(err)
	}
	return out, errs, raw
}

func TestTexter(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"plain\n", "plain\n"},
		{"é€𝄞é", "é€𝄞é"},
		{"a\xffb", "a\uFFFDb"},
		{"a\xe2\x82", "a\uFFFD\uFFFD"},
		{"\xe2\x82\xe2\x82\xac", "\uFFFD\uFFFD€"},
		{"\x00\x1b[0m", "\x00\x1b[0m"},
		{strings.Repeat("\xff", 3*maxPiece), strings.Repeat("\uFFFD", 3*maxPiece)},
		{strings.Repeat("\x01", 3*maxPiece), strings.Repeat("\x01", 3*maxPiece)},
		{strings.Repeat("𝄞", maxPiece), strings.Repeat("𝄞", maxPiece)},
	} {
		for _, step := range []int{1, 2, 3, 5, 1 << 20} {
			for _, other := range []bool{false, true} {
				if len(tt.in) > 100 && step < 5 {
					continue
				}
				out, errs, raw := collect(t, tt.in, step, other)
				if out != tt.want || string(raw) != tt.in || strings.Trim(errs, "e") != "" {
					t.Errorf("%.20q in steps of %d: %.40q, raw %.40q, stderr %.10q", tt.in, step, out, raw, errs)
				}
			}
		}
	}
}

func TestTexterGap(t *testing.T) {
	var got []outPiece
	x := texter{emit: func(_ string, p outPiece) error { got = append(got, p); return nil }}
	x.chunk(api.Chunk{Stream: "stdout", Data: []byte("a\xe2")})
	x.chunk(api.Chunk{Stream: "stdout", Offset: 102, Gap: 100, Data: []byte("\xacb")})
	x.chunk(api.Chunk{Stream: "stdout", Offset: 110, Gap: 6})
	x.end()
	want := []outPiece{{Chunk: "a"}, {Chunk: "\uFFFD", Base64: "4g==", Offset: 1}, {Chunk: "\uFFFDb", Base64: "rGI=", Offset: 102, Gap: 100}, {Offset: 110, Gap: 6}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func FuzzTexter(f *testing.F) {
	f.Add("é\xff€", 1, true)
	f.Add("\xf0\x9d\x84", 2, false)
	f.Fuzz(func(t *testing.T, in string, step int, other bool) {
		if step < 1 || len(in)/step > 1000 {
			return
		}
		if _, _, raw := collect(t, in, step, other); string(raw) != in {
			t.Fatalf("%q came out as %q", in, raw)
		}
	})
}

func FuzzASCII(f *testing.F) {
	f.Add("a\u0085\u2028\x7f𝄞\xff<&>\"\\")
	f.Fuzz(func(t *testing.T, in string) {
		b := appendASCII(nil, map[string]string{"v": in})
		for _, c := range b {
			if c < 0x20 || c >= 0x7f {
				t.Fatalf("%q holds %#x", b, c)
			}
		}
		var out map[string]string
		if err := json.Unmarshal(b, &out); err != nil || out["v"] != strings.ToValidUTF8(in, "\uFFFD") && utf8.ValidString(in) {
			t.Fatalf("%q became %q, %v", in, out["v"], err)
		}
	})
}

func FuzzMux(f *testing.F) {
	f.Add(`{"id":"a","cmd":"true","timeout_seconds":1.5}`)
	f.Add(`{"id":"a","cancel":true}`)
	f.Add(`{"id":"a","args":["x"],"cmd":"y"}`)
	f.Fuzz(func(t *testing.T, in string) {
		q, err := parseMux([]byte(in))
		if len(q.ID) > maxMuxID {
			t.Fatalf("an id of %d bytes", len(q.ID))
		}
		if err == nil && (q.ID == "" || !q.Cancel && (q.Cmd == "") == (len(q.Args) == 0)) {
			t.Fatalf("accepted %q as %+v", in, q)
		}
		if q, ok := parsePTY([]byte(in)); ok && q.Resize != nil && (q.Resize.Rows == 0 || q.Resize.Cols == 0) {
			t.Fatalf("accepted %q", in)
		}
	})
}

func TestSignalNumber(t *testing.T) {
	for in, want := range map[string]int{"TERM": 15, "sigkill": 9, "15": 15, "64": 64, "0": 0, "65": 0, "-9": 0, "": 0, "SIG": 0, "NOPE": 0} {
		if n, err := signalNumber(in); n != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", in, n, err)
		}
	}
}

func TestCutter(t *testing.T) {
	long := strings.Repeat("x", maxLogLine+10)
	var got []string
	var c cutter
	add := func(stream, text string) {
		c.add(stream, []byte(text), func(s string, l []byte) error { got = append(got, s[3:]+":"+string(l)); return nil })
	}
	add("stdout", "a")
	add("stderr", "b\n\n")
	add("stdout", "c\nd")
	add("stdout", long+"\n")
	c.end(func(s string, l []byte) error { got = append(got, "end "+string(l)); return nil })
	want := []string{"err:b\n", "err:\n", "out:ac\n", "out:d" + long[:maxLogLine-1], "out:" + long[:11] + "\n"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%.300q", got)
	}
}

func TestLastTail(t *testing.T) {
	var l last
	l.write([]byte("a\nb\nc"))
	for n, want := range map[uint64]string{0: "", 1: "c", 2: "b\nc", 3: "a\nb\nc", 99: "a\nb\nc"} {
		if got := string(l.tail(n)); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	l = last{}
	for range 5 * maxLog / 8 {
		l.write([]byte("1234567\n"))
	}
	if got := l.tail(1 << 40); len(got) > maxLog || len(got) < maxLog-8 || got[0] != '1' || cap(l.b) > 8*maxLog {
		t.Errorf("%d bytes of %d", len(got), cap(l.b))
	}
	if got := string((&last{}).tail(3)); got != "" {
		t.Errorf("%q", got)
	}
}

func FuzzExecRequest(f *testing.F) {
	f.Add(`{"cmd":"true","timeout_seconds":1.5}`)
	f.Add(`{"args":["a","b"],"env":{"A":"b"},"input":"x","exec_id":"x0"}`)
	f.Add(`{"cmd":"x"} {}`)
	f.Fuzz(func(t *testing.T, in string) {
		w := httptest.NewRecorder()
		req, err := execRequest(w, httptest.NewRequest("POST", "/", strings.NewReader(in)))
		if err == nil && ((req.Cmd == "") == (len(req.Args) == 0) || req.Stdin && req.Input != "") {
			t.Fatalf("accepted %q as %+v", in, req)
		}
		if err != nil && api.Status(public(err).Code) >= 500 {
			t.Fatalf("%q: %v", in, err)
		}
	})
}
