package sniff

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
)

// ext is one extension.
func ext(what uint16, data ...byte) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, what), uint16(len(data))), data...)
}

// sni is the extension server_name for names.
func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(binary.BigEndian.AppendUint16(append(list, 0), uint16(len(n))), n...)
	}
	return ext(extServerName, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)...)
}

// hello is a client hello's message with these extensions.
func hello(exts ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	if exts != nil {
		all := slices.Concat(exts...)
		body = append(binary.BigEndian.AppendUint16(body, uint16(len(all))), all...)
	}
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// records cuts a message into records of at most size bytes.
func records(msg []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(msg, size) {
		out = append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// feed gives b to a reader in pieces.
func feed(b []byte, piece int) (ClientHello, error) {
	var r HelloReader
	for part := range slices.Chunk(b, piece) {
		if h, err := r.Feed(part); !errors.Is(err, ErrMore) {
			return h, err
		}
	}
	return r.Feed(nil)
}

func TestClientHello(t *testing.T) {
	flip := func(b []byte, i int, c byte) []byte { b = bytes.Clone(b); b[i] = c; return b }
	ok := hello(sni("Example.TEST"))
	for _, tt := range []struct {
		name string
		in   []byte
		want ClientHello
		err  error
	}{
		{"a name", records(ok, 1<<14), ClientHello{Name: "example.test"}, nil},
		{"over records of one byte", records(ok, 1), ClientHello{Name: "example.test"}, nil},
		{"no extensions", records(hello(), 1<<14), ClientHello{}, nil},
		{"empty extensions", records(hello([]byte{}), 1<<14), ClientHello{}, nil},
		{"an address", records(hello(sni("192.0.2.1")), 1<<14), ClientHello{}, nil},
		{"an address of six", records(hello(sni("2001:db8::1")), 1<<14), ClientHello{}, nil},
		{"an address in hex", records(hello(sni("0x7f.1")), 1<<14), ClientHello{}, nil},
		{"ECH", records(hello(sni("a.test"), ext(extECH, 0)), 1<<14), ClientHello{Name: "a.test", Hidden: true}, nil},
		{"ESNI", records(hello(ext(extESNI)), 1<<14), ClientHello{Hidden: true}, nil},
		{"early data behind it", append(records(ok, 1<<14), 23, 3, 3, 0, 1, 0), ClientHello{Name: "example.test"}, nil},
		{"60 KiB", records(hello(sni("a.test"), ext(21, make([]byte, 60<<10)...)), 1<<14), ClientHello{Name: "a.test"}, nil},
		{"record version 3.3", flip(records(ok, 1<<14), 2, 3), ClientHello{Name: "example.test"}, nil},

		{"goes on", records(ok, 1<<14)[:20], ClientHello{}, ErrMore},
		{"two names", records(hello(sni("a.test", "b.test")), 1<<14), ClientHello{}, ErrMalformed},
		{"no names", records(hello(sni()), 1<<14), ClientHello{}, ErrMalformed},
		{"an empty extension", records(hello(ext(extServerName)), 1<<14), ClientHello{}, ErrMalformed},
		{"another kind of name", records(hello(flip(sni("a.test"), 6, 1)), 1<<14), ClientHello{}, ErrMalformed},
		{"a name with NUL", records(hello(sni("a.test\x00.b.test")), 1<<14), ClientHello{}, ErrMalformed},
		{"a name with a dot at its end", records(hello(sni("a.test.")), 1<<14), ClientHello{}, ErrMalformed},
		{"a name with bytes beyond ASCII", records(hello(sni("\xc3\xa4.test")), 1<<14), ClientHello{}, ErrMalformed},
		{"a long name", records(hello(sni(strings.Repeat("a.", 130)+"test")), 1<<14), ClientHello{}, ErrMalformed},
		{"name twice", records(hello(sni("a.test"), sni("b.test")), 1<<14), ClientHello{}, ErrMalformed},
		{"another extension twice", records(hello(ext(7), sni("a.test"), ext(7)), 1<<14), ClientHello{}, ErrMalformed},
		{"extension longer than the rest", records(hello(append(sni("a.test"), 0, 7, 0, 1)), 1<<14), ClientHello{}, ErrMalformed},
		{"half an extension", records(hello(append(sni("a.test"), 0)), 1<<14), ClientHello{}, ErrMalformed},
		{"garbage behind it in the record", records(append(bytes.Clone(ok), 0), 1<<14), ClientHello{}, ErrMalformed},
		{"length too short", records(flip(ok, 3, ok[3]-1), 1<<14), ClientHello{}, ErrMalformed},
		{"another message", records(flip(ok, 0, 2), 1<<14), ClientHello{}, ErrMalformed},
		{"alert between its records", append(records(ok[:10], 1<<14), 21, 3, 1, 0, 2, 1, 0), ClientHello{}, ErrMalformed},
		{"an empty record", []byte{22, 3, 1, 0, 0}, ClientHello{}, ErrNotTLS},
		{"an empty record in it", append(records(ok[:10], 1<<14), 22, 3, 1, 0, 0), ClientHello{}, ErrMalformed},
		{"a record too long", []byte{22, 3, 1, 0x40, 1}, ClientHello{}, ErrNotTLS},
		{"says 16 MiB", records([]byte{1, 0xff, 0xff, 0xff, 3, 3}, 1<<14), ClientHello{}, ErrMalformed},
		{"more than 64 KiB", records(hello(ext(21, make([]byte, 65500)...)), 1<<14), ClientHello{}, ErrMalformed},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, ClientHello{}, ErrNotTLS},
		{"SSL 3 record", []byte{22, 3, 0, 0, 10}, ClientHello{}, ErrNotTLS},
		{"SSL 3 hello", records(flip(ok, 5, 0), 1<<14), ClientHello{}, ErrMalformed},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), ClientHello{}, ErrNotTLS},
		{"odd cipher suites", records(flip(ok, 40, 3), 1<<14), ClientHello{}, ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, piece := range []int{len(tt.in), 1, 7} {
				h, err := feed(tt.in, piece)
				if h != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("in pieces of %d: %+v, %v; want %+v, %v", piece, h, err, tt.want, tt.err)
				}
			}
		})
	}
}

// TestClientHelloOfGo reads what a real client sends.
func TestClientHelloOfGo(t *testing.T) {
	h, err := feed(goHello(t, "www.Example.test"), 100)
	if err != nil || h.Name != "www.example.test" || h.Hidden {
		t.Errorf("got %+v, %v", h, err)
	}
}

func goHello(t testing.TB, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		tls.Client(a, &tls.Config{ServerName: name}).Handshake()
		a.Close()
	}()
	buf := make([]byte, 4096)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func FuzzClientHello(f *testing.F) {
	f.Add(records(hello(sni("a.test")), 1<<14), uint8(3))
	f.Add(records(hello(sni("a.test"), ext(extECH, 0)), 9), uint8(1))
	f.Add(goHello(f, "b.test"), uint8(200))
	f.Add([]byte{22, 3, 1, 0, 1, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		h, err := feed(b, max(len(b), 1))
		h2, err2 := feed(b, int(max(piece, 1)))
		if h != h2 || err != err2 {
			t.Fatalf("at once %+v, %v; in pieces %+v, %v", h, err, h2, err2)
		}
		if err != nil && h != (ClientHello{}) {
			t.Fatalf("%+v beside %v", h, err)
		}
		if h.Name != "" {
			if n, ok := hostName(h.Name); !ok || n != h.Name {
				t.Fatalf("name %q", h.Name)
			}
		}
	})
}
