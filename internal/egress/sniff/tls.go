package sniff

import (
	"encoding/binary"
	"errors"
)

// MaxHello is how many bytes a client hello may take, with its records' heads.
const MaxHello = 64 << 10

// A ClientHello is what a TLS client says of where it wants to go.
type ClientHello struct {
	// Name is the server name, lower case; "" for none, and for an address,
	// which none may be.
	Name string
	// Hidden says that there is an encrypted client hello inside, or the
	// appearance of one: Name is then not where the connection goes.
	Hidden bool
}

// Answers of HelloReader.Feed. Whoever sent what neither of them describes has
// no TLS that can be relied on.
var (
	ErrMore      = errors.New("the client hello goes on") // feed the next bytes
	ErrNotTLS    = errors.New("not TLS")
	ErrMalformed = errors.New("a client hello that is not well-formed")
)

// A HelloReader puts a client hello together as its bytes arrive. The zero value
// is ready.
type HelloReader struct {
	fed    int
	head   [5]byte // of the record, as far as it came
	nhead  int
	body   int // bytes missing of the record
	hello  []byte
	result error // of all later calls
	done   ClientHello
}

// Feed takes the next bytes. It returns ErrMore until the hello is complete;
// what follows the hello's last record is not looked at.
func (r *HelloReader) Feed(p []byte) (ClientHello, error) {
	if r.result == nil {
		r.result = ErrMore
	}
	if r.result == ErrMore {
		r.done, r.result = r.feed(p)
	}
	if r.result == errDone {
		return r.done, nil
	}
	return ClientHello{}, r.result
}

var errDone = errors.New("done")

func (r *HelloReader) feed(p []byte) (ClientHello, error) {
	for len(p) > 0 {
		if r.body == 0 {
			n := copy(r.head[r.nhead:], p)
			r.nhead, p, r.fed = r.nhead+n, p[n:], r.fed+n
			if err := r.checkHead(); err != nil {
				return ClientHello{}, err
			}
			if r.nhead < len(r.head) {
				break
			}
			r.nhead, r.body = 0, int(binary.BigEndian.Uint16(r.head[3:]))
			continue
		}
		n := min(r.body, len(p))
		if r.fed += n; r.fed > MaxHello {
			return ClientHello{}, ErrMalformed
		}
		r.hello, r.body, p = append(r.hello, p[:n]...), r.body-n, p[n:]
		if r.hello[0] != 1 { // client_hello
			return ClientHello{}, ErrMalformed
		}
		if len(r.hello) < 4 {
			continue
		}
		want := 4 + int(r.hello[1])<<16 + int(binary.BigEndian.Uint16(r.hello[2:]))
		switch {
		case want > MaxHello || len(r.hello) > want || len(r.hello) == want && r.body > 0:
			return ClientHello{}, ErrMalformed // too long, or something follows in the same record
		case len(r.hello) == want:
			h, err := parseHello(r.hello[4:])
			if err == nil {
				err = errDone
			}
			return h, err
		}
	}
	return ClientHello{}, ErrMore
}

// checkHead looks at what there is of a record's head.
func (r *HelloReader) checkHead() error {
	bad := ErrMalformed
	if len(r.hello) == 0 {
		bad = ErrNotTLS
	}
	h := r.head[:r.nhead]
	switch {
	case len(h) > 0 && h[0] != 22, len(h) > 1 && h[1] != 3, len(h) > 2 && (h[2] < 1 || h[2] > 3):
		return bad
	case len(h) == 5:
		if n := binary.BigEndian.Uint16(h[3:]); n == 0 || n > 1<<14 {
			return bad
		}
	}
	return nil
}

// Numbers of extensions.
const (
	extServerName = 0
	extESNI       = 0xffce // what ECH was before
	extECH        = 0xfe0d
)

// parseHello reads the body of a client hello.
func parseHello(b []byte) (ClientHello, error) {
	var h ClientHello
	c := cursor{rest: b}
	version := c.u16()
	c.take(32) // random
	session := c.take(int(c.u8()))
	suites := c.take(int(c.u16()))
	methods := c.take(int(c.u8()))
	if c.bad || version < 0x0301 || version > 0x0303 || len(session) > 32 ||
		len(suites) == 0 || len(suites)%2 != 0 || len(methods) == 0 {
		return h, ErrMalformed
	}
	if len(c.rest) == 0 {
		return h, nil // as old as that: no extensions
	}
	if n := int(c.u16()); c.bad || n != len(c.rest) {
		return h, ErrMalformed
	}
	seen := map[uint16]bool{}
	for len(c.rest) > 0 {
		what := c.u16()
		data := c.take(int(c.u16()))
		if c.bad || seen[what] {
			return ClientHello{}, ErrMalformed
		}
		seen[what] = true
		switch what {
		case extServerName:
			name, ok := serverName(data)
			if !ok {
				return ClientHello{}, ErrMalformed
			}
			h.Name = name
		case extECH, extESNI:
			h.Hidden = true
		}
	}
	return h, nil
}

// serverName reads the extension of that name: a list of exactly one host_name.
func serverName(b []byte) (string, bool) {
	c := cursor{rest: b}
	n := int(c.u16())
	kind := c.u8()
	name := string(c.take(int(c.u16())))
	if c.bad || n != len(b)-2 || len(c.rest) > 0 || kind != 0 {
		return "", false
	}
	if literal(name) {
		return "", true
	}
	return hostName(name)
}

// A cursor reads numbers and strings until something is missing.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.bad, c.rest = true, nil
	}
	if c.bad {
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) u8() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}
