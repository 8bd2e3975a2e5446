package main

import (
	"io"
	"strings"
	"sync"

	"github.com/bermhq/berm/internal/guest"
)

// A speaker is an agent that is as honest as it must be for a sandbox to be
// taken for one that came up: it greets, takes files and throws them away, and
// answers each other request with nothing. A command "standin NAME ..." is an
// attempt of that name.
type speaker struct {
	rw       io.ReadWriter
	attempts map[string]func(*try)
	inside   *sentry // what the stand-in of a sentry holds; nil in a guest

	content func(io.Writer)        // what each file holds; nil: nothing
	torn    bool                   // and it ends with an error
	names   func(*speaker, uint32) // what a listing ends with

	mu    sync.Mutex
	epoch uint32
	mute  bool            // it answers nothing any more
	calls map[uint32]*ask // that are open
}

// An ask is one call of the host's.
type ask struct {
	req    []byte
	method int
	left   chan int // what the host lets it send
}

// serve speaks until the stream ends.
func (s *speaker) serve() {
	s.calls = map[uint32]*ask{}
	for fr := guest.NewFrameReader(s.rw); ; {
		f, err := fr.Next()
		if err != nil {
			return
		}
		s.frame(f)
	}
}

func (s *speaker) frame(f guest.Frame) {
	a := s.calls[f.Stream]
	switch f.Kind {
	case guest.KindAttach:
		hello := guest.Hello{Version: guest.Version, Agent: "standin", Boot: guest.Boot{Hostname: "sandbox", Kernel: "gvisor", PID: 1}}
		s.mu.Lock()
		s.epoch = f.Epoch
		s.mu.Unlock()
		s.calls = map[uint32]*ask{}
		s.raw(guest.AppendFrame(guest.AppendMarker(nil, f.Epoch, f.Nonce), f.Epoch, 0, guest.KindHello, hello.Append(nil)))
	case guest.KindOpenPart, guest.KindOpen:
		if a == nil {
			a = &ask{}
			s.calls[f.Stream] = a
		}
		a.req = append(a.req, f.Body...)
		if f.Kind == guest.KindOpen {
			s.begin(f.Stream, a)
		}
	case guest.KindData:
		s.send(f.Stream, guest.KindCredit, guest.AppendCredit(nil, len(f.Body)+guest.FrameCost))
	case guest.KindCredit:
		if n, ok := guest.ParseCredit(f.Body); ok && a != nil && a.left != nil {
			select {
			case a.left <- n:
			default:
			}
		}
	case guest.KindEnd, guest.KindCancel:
		if a != nil && a.method != guest.MethodStart {
			delete(s.calls, f.Stream)
			s.reply(f.Stream, nil)
		}
	}
}

func (s *speaker) begin(stream uint32, a *ask) {
	var o guest.Open
	if !o.Decode(a.req) {
		return
	}
	a.method, a.req = o.Method, nil
	switch o.Method {
	case guest.MethodTarIn, guest.MethodWrite:
		return // answered when all of it has come
	case guest.MethodStart:
		var st guest.Start
		if st.Decode(o.Body) {
			go s.start(stream, st)
		}
		return
	case guest.MethodRead:
		if s.content != nil {
			a.left = make(chan int, 4096)
			go s.file(stream, a.left, o.Window)
			return
		}
		s.reply(stream, nil)
	case guest.MethodList, guest.MethodGlob:
		go s.files(stream)
		return
	case guest.MethodKill:
		k := guest.KillReply{Killed: 1}
		s.reply(stream, k.Append(nil))
	case guest.MethodUsage:
		var u guest.Usage
		s.reply(stream, u.Append(nil))
	default:
		s.reply(stream, nil)
	}
	delete(s.calls, stream)
}

// start does what a command says, and ends it.
func (s *speaker) start(stream uint32, st guest.Start) {
	var e guest.Exit
	switch {
	case len(st.Args) > 0 && st.Args[0] == "echo":
		s.send(stream, guest.KindData, []byte(strings.Join(st.Args[1:], " ")+"\n"))
	case len(st.Args) > 3 && st.Args[0] == "standin":
		t := newTry(s, stream, st.Args[1:])
		if do := s.attempts[t.name]; do != nil {
			t.run(do)
			if t.replied {
				return
			}
		} else {
			e.NotStarted, e.Errno = "no such attempt", 2
		}
	}
	s.reply(stream, e.Append(nil))
}

// file answers with what a file is said to hold.
func (s *speaker) file(stream uint32, left chan int, have int) {
	s.content(&window{s: s, stream: stream, left: left, have: have})
	if s.torn {
		r := guest.Reply{Errno: 5, Text: "\x1b[2J\x1b]0;standin\x07 torn \xff\xfe\n{}"}
		s.send(stream, guest.KindReply, r.Append(nil))
		return
	}
	s.reply(stream, nil)
}

func (s *speaker) reply(stream uint32, body []byte) {
	r := guest.Reply{Body: body}
	s.send(stream, guest.KindReply, r.Append(nil))
}

// send writes one frame of this epoch.
func (s *speaker) send(stream uint32, kind byte, body []byte) {
	s.mu.Lock()
	b, mute := guest.AppendFrame(nil, s.epoch, stream, kind, body), s.mute
	s.mu.Unlock()
	if !mute {
		s.raw(b)
	}
}

var writing sync.Mutex

// raw writes whatever it is given.
func (s *speaker) raw(b []byte) error {
	writing.Lock()
	defer writing.Unlock()
	_, err := s.rw.Write(b)
	return err
}

// hush ends every answer from here on, or no longer does.
func (s *speaker) hush(on bool) {
	s.mu.Lock()
	s.mute = on
	s.mu.Unlock()
}
