package testkit

import (
	"io"
	"net"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// A HostileGuest is what may sit at the other end of a guest's stream. Whoever
// speaks to one must get an error, or a bounded answer, and never wait longer
// than it meant to.
type HostileGuest struct {
	Name  string
	Break bool // it breaks the protocol once it is asked something
	Dial  func() net.Conn
}

// HostileGuests are all the kinds that need no honest agent behind them.
func HostileGuests() []HostileGuest {
	script := func(name string, f func(*Script)) HostileGuest {
		return HostileGuest{Name: name, Break: true, Dial: func() net.Conn { return Scripted(f) }}
	}
	raw := func(name string, breaks bool, f func(net.Conn)) HostileGuest {
		return HostileGuest{Name: name, Break: breaks, Dial: func() net.Conn {
			h, g := net.Pipe()
			go f(g)
			return h
		}}
	}
	return []HostileGuest{
		raw("silent", false, func(g net.Conn) { io.Copy(io.Discard, g) }),
		raw("deaf", false, func(g net.Conn) {}),
		raw("gone", false, func(g net.Conn) { g.Close() }),
		raw("noise", true, func(g net.Conn) {
			go io.Copy(io.Discard, g)
			for b := make([]byte, 64<<10); ; {
				if _, err := g.Write(b); err != nil {
					return
				}
			}
		}),
		script("wrong version", func(s *Script) {
			h := guest.Hello{Version: 99}
			s.Marker()
			s.Frame(0, guest.KindHello, h.Append(nil))
		}),
		script("no hello", func(s *Script) { s.Marker(); s.Frame(1, guest.KindData, []byte("x")) }),
		script("two hellos", func(s *Script) { s.Greet(); s.Greet() }),
		script("other epoch", func(s *Script) { s.Greet(); s.Epoch++; s.Frame(s.Open(), guest.KindReply, nil) }),
		script("unknown stream", func(s *Script) { s.Greet(); s.Frame(s.Open()+1000, guest.KindData, []byte("x")) }),
		script("unknown kind", func(s *Script) { s.Greet(); s.Frame(s.Open(), 77, nil) }),
		script("long frame", func(s *Script) {
			s.Greet()
			id := s.Open()
			h := make([]byte, guest.HeaderSize)
			guest.PutHeader(h, s.Epoch, id, guest.KindData, guest.MaxFrame+1)
			s.Write(h)
		}),
		script("huge frame", func(s *Script) {
			s.Greet()
			id := s.Open()
			h := make([]byte, guest.HeaderSize)
			guest.PutHeader(h, s.Epoch, id, guest.KindReply, 1<<32-1)
			s.Write(h)
		}),
		script("beyond the window", func(s *Script) {
			s.Greet()
			id := s.Open()
			for b := make([]byte, guest.MaxFrame); s.Frame(id, guest.KindData, b) == nil; {
			}
		}),
		script("crumbs", func(s *Script) {
			s.Greet()
			for id := s.Open(); s.Frame(id, guest.KindData, []byte{0}) == nil; {
			}
		}),
		script("false credit", func(s *Script) { s.Greet(); s.Frame(s.Open(), guest.KindCredit, guest.AppendCredit(nil, 1<<29)) }),
		script("malformed credit", func(s *Script) { s.Greet(); s.Frame(s.Open(), guest.KindCredit, []byte{0x80}) }),
		script("malformed reply", func(s *Script) { s.Greet(); s.Frame(s.Open(), guest.KindReply, []byte{0xff, 0xff}) }),
		script("long reply", func(s *Script) { s.Greet(); s.Frame(s.Open(), guest.KindReply, make([]byte, guest.MaxReply+1)) }),
		script("impossible exit", func(s *Script) {
			s.Greet()
			e := guest.Exit{Code: 1 << 40, EndedBy: "magic"}
			r := guest.Reply{Body: e.Append(nil)}
			for range 8 { // one of them is for a process
				s.Frame(s.Open(), guest.KindReply, r.Append(nil))
			}
		}),
		script("stops twice", func(s *Script) {
			s.Greet()
			id := s.Open()
			for s.Frame(id, guest.KindStop, nil) == nil {
			}
		}),
		script("data after reply", func(s *Script) {
			s.Greet()
			id := s.Open()
			e := guest.Exit{}
			r := guest.Reply{Body: e.Append(nil)}
			s.Frame(id, guest.KindReply, r.Append(nil))
			s.Frame(id, guest.KindData, []byte("late"))
		}),
	}
}

// A Script plays a guest frame by frame.
type Script struct {
	Epoch uint32
	nonce uint64
	conn  net.Conn
	fr    *guest.FrameReader
	opens chan uint32
}

// Scripted returns the host's end of a guest that f plays. Before f is called
// the host's marker has been read; what the host sends later is read and
// forgotten, but for the streams it opens. After f the guest stays silent.
func Scripted(f func(*Script)) net.Conn {
	h, g := net.Pipe()
	go func() {
		s := &Script{conn: g, fr: guest.NewFrameReader(g), opens: make(chan uint32, 1024)}
		fr, err := s.fr.Next()
		if err != nil {
			return
		}
		s.Epoch, s.nonce = fr.Epoch, fr.Nonce
		go s.listen()
		f(s)
	}()
	return h
}

func (s *Script) listen() {
	defer close(s.opens)
	for {
		fr, err := s.fr.Next()
		if err != nil {
			return
		}
		if fr.Kind == guest.KindOpen {
			select {
			case s.opens <- fr.Stream:
			default:
			}
		}
	}
}

// Marker echoes the host's marker.
func (s *Script) Marker() error {
	return s.Write(guest.AppendMarker(nil, s.Epoch, s.nonce))
}

// Greet echoes the marker and says hello, as an honest guest would.
func (s *Script) Greet() error {
	h := guest.Hello{Version: guest.Version, Agent: "hostile", Boot: guest.Boot{PID: 1}}
	if err := s.Marker(); err != nil {
		return err
	}
	return s.Frame(0, guest.KindHello, h.Append(nil))
}

// Open waits for the host to open a stream; 0 if it went away.
func (s *Script) Open() uint32 { return <-s.opens }

// Frame sends one frame.
func (s *Script) Frame(stream uint32, kind byte, body []byte) error {
	return s.Write(guest.AppendFrame(nil, s.Epoch, stream, kind, body))
}

// Write sends bytes as they are.
func (s *Script) Write(b []byte) error {
	_, err := s.conn.Write(b)
	return err
}

// Close ends the guest's side.
func (s *Script) Close() { s.conn.Close() }

// Slow lets at most n bytes come from the guest in every d.
func Slow(n int, d time.Duration) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn { return slowConn{c, n, d} }
}

type slowConn struct {
	net.Conn
	n int
	d time.Duration
}

func (c slowConn) Read(p []byte) (int, error) {
	time.Sleep(c.d)
	return c.Conn.Read(p[:min(c.n, len(p))])
}
