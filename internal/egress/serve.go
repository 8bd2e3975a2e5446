package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/bermhq/berm/internal/egress/wire"
)

// Times that one ask may take.
const (
	nameTime = 5 * time.Second
	dialTime = 10 * time.Second
	sendTime = 10 * time.Second // for the gateway to take an answer
)

// flowWindow is how far back flow numbers are known.
const flowWindow = 4096

// A session is one gateway, as long as it lives.
type session struct {
	l    *link
	raw  *net.UnixConn
	wire *wire.Conn
	ctx  context.Context
	stop context.CancelFunc // ends the service
	wg   sync.WaitGroup     // asks that are being answered
	busy chan struct{}      // a place for each

	// Guarded by l.mu.
	flows map[uint64]*flow
	top   uint64 // the highest flow number so far
	used  [flowWindow / 64]uint64
}

// serve answers one gateway until it, or the link, is gone.
func (l *link) serve(conn *net.UnixConn) error {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{l: l, raw: conn, wire: wire.NewConn(conn), ctx: ctx, stop: cancel,
		busy: make(chan struct{}, wire.MaxAsks), flows: map[uint64]*flow{}}
	context.AfterFunc(ctx, func() { conn.Close() }) // whoever stops it hangs up
	defer cancel()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrUnknown
	}
	l.sessions[s] = struct{}{}
	l.wg.Add(1)
	l.mu.Unlock()
	defer l.wg.Done()

	err := s.run()
	cancel()
	s.wg.Wait()
	l.mu.Lock()
	delete(l.sessions, s)
	var tells []func()
	for _, f := range s.flows {
		tells = append(tells, l.end(f))
	}
	l.mu.Unlock()
	all(tells)
	return err
}

// run reads asks. What is quick and must be in order is answered here, the rest
// beside it.
func (s *session) run() error {
	s.answer(wire.Answer{}, -1) // go
	for {
		select {
		case s.busy <- struct{}{}: // not read before there is a place for it
		case <-s.ctx.Done():
			return nil
		}
		if !s.pace() {
			return nil
		}
		a, err := s.wire.ReceiveAsk()
		switch {
		case errors.Is(err, wire.ErrMessage):
			return err
		case err == io.EOF, s.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if do := s.begin(a); do != nil {
			s.wg.Go(func() {
				do()
				<-s.busy
			})
			continue
		}
		<-s.busy
	}
}

// pace waits for the sandbox's turn to ask again.
func (s *session) pace() bool {
	for {
		s.l.mu.Lock()
		p := &s.l.paced
		p.fill(s.l.pace, time.Now())
		ok := p.tokens >= 1
		if ok {
			p.tokens--
		}
		s.l.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.ctx.Done():
			return false
		}
	}
}

// begin does what an ask wants at once, and returns what takes longer.
func (s *session) begin(a wire.Ask) (do func()) {
	switch a.Op {
	case wire.OpName:
		return func() { s.answer(s.l.name(s.ctx, a), -1) }
	case wire.OpAccept:
		f, answer := s.accept(a)
		if f == nil {
			s.answer(answer, -1)
			return nil
		}
		return func() { s.connect(f, wire.Ask{Seq: a.Seq}) }
	case wire.OpConnect:
		f, refused := s.dialling(a)
		if f == nil {
			s.answer(refused, -1)
			return nil
		}
		return func() { s.connect(f, a) }
	case wire.OpRequest:
		return func() { s.answer(s.request(a), -1) }
	case wire.OpClose:
		s.over(a.Flow, a.Reason == wire.CloseReset)
	case wire.OpDenied:
		s.l.reported(a)
	}
	return nil
}

// answer sends one answer, with a descriptor unless that is negative. A gateway
// that does not take it is done.
func (s *session) answer(a wire.Answer, fd int) {
	s.raw.SetWriteDeadline(time.Now().Add(sendTime))
	if err := s.wire.SendAnswer(a, fd); err != nil {
		s.stop()
	}
}

// fresh says whether a flow number was never used, and marks it. l.mu is held.
func (s *session) fresh(n uint64) bool {
	switch {
	case n == 0 || s.top >= flowWindow && n <= s.top-flowWindow:
		return false
	case n > s.top:
		if n-s.top >= flowWindow {
			clear(s.used[:])
		} else {
			for i := s.top + 1; i != n+1; i++ { // n may be the last number there is
				s.used[i/64%uint64(len(s.used))] &^= 1 << (i % 64)
			}
		}
		s.top = n
	}
	word, bit := &s.used[n/64%uint64(len(s.used))], uint64(1)<<(n%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
