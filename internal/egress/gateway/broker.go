package gateway

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/egress/wire"
)

// patience is how long an answer is waited for. The broker gives up on what it
// dials long before.
const patience = 60 * time.Second

// errGone is the answer to all that is asked when no broker is left.
var errGone = errors.New("gateway: the broker is gone")

// A broker is the client of the other socket.
type broker struct {
	conn *wire.Conn
	open chan struct{} // holds one for each ask without answer
	gone chan struct{} // closed with the connection

	mu   sync.Mutex
	seq  uint64
	asks map[uint64]chan reply
}

type reply struct {
	wire.Answer
	file *os.File // nil where nothing came along
}

// newBroker takes f, one end of a SOCK_SEQPACKET pair, and closes it.
func newBroker(f *os.File) (*broker, error) {
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("gateway: the broker's descriptor is no unix socket")
	}
	return &broker{
		conn: wire.NewConn(u), open: make(chan struct{}, wire.MaxAsks), gone: make(chan struct{}), asks: map[uint64]chan reply{},
	}, nil
}

// begin waits for the message that comes before all others.
func (b *broker) begin() error {
	r, err := b.read()
	if err != nil {
		return err
	}
	if r.file != nil {
		r.file.Close()
	}
	if r.Seq != 0 {
		return errors.New("gateway: the broker's first message is an answer")
	}
	return nil
}

// serve hands out answers until the connection ends.
func (b *broker) serve() error {
	defer close(b.gone)
	for {
		r, err := b.read()
		if err != nil {
			return err
		}
		b.mu.Lock()
		ch := b.asks[r.Seq]
		delete(b.asks, r.Seq)
		b.mu.Unlock()
		if ch != nil {
			ch <- r // has room for the only answer
		} else if r.file != nil {
			r.file.Close() // nobody waits any more
		}
	}
}

// read reads one message and the descriptor that came with it.
func (b *broker) read() (reply, error) {
	a, fd, err := b.conn.ReceiveAnswer()
	if err != nil || fd < 0 {
		return reply{Answer: a}, err
	}
	unix.SetNonblock(fd, true) // or its reads would each hold a thread
	return reply{a, os.NewFile(uintptr(fd), "outside")}, nil
}

// ask asks and waits. A file that comes with the answer is the caller's.
func (b *broker) ask(a wire.Ask) (wire.Answer, *os.File, error) {
	select {
	case b.open <- struct{}{}:
	case <-b.gone:
		return wire.Answer{}, nil, errGone
	}
	defer func() { <-b.open }()
	ch := make(chan reply, 1)
	b.mu.Lock()
	b.seq++
	a.Seq = b.seq
	b.asks[a.Seq] = ch
	b.mu.Unlock()
	if err := b.tell(a); err != nil {
		return wire.Answer{}, nil, err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case r := <-ch:
		return r.Answer, r.file, nil
	case <-b.gone:
		return wire.Answer{}, nil, errGone
	case <-late.C:
	}
	b.mu.Lock()
	delete(b.asks, a.Seq)
	b.mu.Unlock()
	select { // it came in between
	case r := <-ch:
		return r.Answer, r.file, nil
	default:
		return wire.Answer{Seq: a.Seq, Fault: "timeout"}, nil, nil
	}
}

// tell says something that needs no answer.
func (b *broker) tell(a wire.Ask) error { return b.conn.SendAsk(a) }
