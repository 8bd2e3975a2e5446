package keeper

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bermhq/berm/internal/jail"
)

// ErrClosed says that the keeper is gone, and with it every sandbox.
var ErrClosed = errors.New("the keeper is gone")

// A Client is the engine's end of a keeper's socket. It is safe for
// concurrent use.
type Client struct {
	conn *net.UnixConn
	done chan struct{}

	sendMu sync.Mutex

	mu      sync.Mutex // guards what follows
	seq     uint64
	waiting map[uint64]chan answer
	watched map[string]*Running
	early   map[string]Exited // ended before its launch was answered
}

type answer struct {
	reply
	files []*os.File
}

// Running is one launched sandbox.
type Running struct {
	PID     int
	Control *os.File           // connection to its control server
	Agent   *os.File           // host end of the agent stream
	Upper   *os.File           // its writable layer, for Allocated
	Gauge   *jail.Gauge        // its cgroup's figures; nil: it has none
	Parts   map[string]float64 // milliseconds of each step of the launch
	Gone    chan struct{}      // closed when it has ended and nothing is left
	Exited  Exited             // once Gone is closed
}

// NewClient speaks to a keeper over conn (SOCK_SEQPACKET).
func NewClient(conn *net.UnixConn) *Client {
	c := &Client{conn: conn, done: make(chan struct{}), waiting: map[uint64]chan answer{},
		watched: map[string]*Running{}, early: map[string]Exited{}}
	go c.read()
	return c
}

// Close ends the connection; the keeper ends every sandbox then.
func (c *Client) Close() error { return c.conn.Close() }

// Launch starts a sandbox. spec is passed on to it as {spec}.
func (c *Client) Launch(ctx context.Context, l Launch, spec *os.File) (*Running, error) {
	a, err := c.call(ctx, request{Op: "launch", Launch: &l}, spec)
	if err != nil {
		if ctx.Err() != nil { // it may be on its way up: nobody waits for it any more
			c.abandon(ctx, l.ID)
		}
		return nil, err
	}
	if len(a.files) != 3+len(a.Gauge) {
		closeAll(a.files)
		c.abandon(ctx, l.ID)
		return nil, errors.New("keeper: launch answer is not whole")
	}
	r := &Running{PID: a.PID, Control: a.files[0], Agent: a.files[1], Upper: a.files[2],
		Parts: a.Parts, Gone: make(chan struct{})}
	if len(a.Gauge) > 0 {
		r.Gauge = jail.GaugeOf(a.V2, a.Gauge, a.files[3:])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.early[l.ID]; ok {
		delete(c.early, l.ID)
		r.Exited = e
		close(r.Gone)
		return r, nil
	}
	select {
	case <-c.done: // read has run its course and will not see r
		r.Exited = lost(l.ID)
		close(r.Gone)
	default:
		c.watched[l.ID] = r
	}
	return r, nil
}

// abandon stops a sandbox that nobody will use, also when ctx is over.
func (c *Client) abandon(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	c.Stop(ctx, id)
}

// Stop ends a sandbox and returns when nothing of it is left. One that has
// ended is no error.
func (c *Client) Stop(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{Op: "stop", ID: id})
	return err
}

// SetDeadline moves the time at which the keeper ends a sandbox, in both
// directions but never past what it was launched with.
func (c *Client) SetDeadline(ctx context.Context, id string, t time.Time) error {
	_, err := c.call(ctx, request{Op: "deadline", ID: id, DeadlineMS: t.UnixMilli()})
	return err
}

// Facts asks what the keeper knows of this host; with probe it tries it out.
func (c *Client) Facts(ctx context.Context, probe bool) (Facts, error) {
	a, err := c.call(ctx, request{Op: "facts", Probe: probe})
	if err != nil {
		return Facts{}, err
	}
	if a.Facts == nil {
		return Facts{}, errors.New("keeper: no facts in its answer")
	}
	return *a.Facts, nil
}

func (c *Client) call(ctx context.Context, q request, files ...*os.File) (answer, error) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.seq++
	q.Seq = c.seq
	c.waiting[q.Seq] = ch
	c.mu.Unlock()
	c.sendMu.Lock()
	err := send(c.conn, q, files...)
	c.sendMu.Unlock()
	if err == nil {
		select {
		case a := <-ch:
			if a.Err != nil {
				closeAll(a.files)
				return answer{}, a.Err
			}
			return a, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.done:
			err = ErrClosed
		}
	}
	c.mu.Lock()
	delete(c.waiting, q.Seq)
	c.mu.Unlock()
	return answer{}, err
}

func (c *Client) read() {
	buf := make([]byte, maxMessage)
	for {
		var a answer
		files, err := receive(c.conn, buf, &a.reply)
		if err != nil {
			break
		}
		a.files = files
		c.mu.Lock()
		if e := a.Exited; e != nil {
			c.exited(*e)
		} else if ch := c.waiting[a.Seq]; ch != nil {
			delete(c.waiting, a.Seq)
			ch <- a
		} else {
			closeAll(files)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	close(c.done)
	for id := range c.watched {
		c.exited(lost(id))
	}
	c.mu.Unlock()
}

func lost(id string) Exited { return Exited{ID: id, Cause: CauseOwner, Code: -1} }

// exited is called with c.mu held.
func (c *Client) exited(e Exited) {
	r := c.watched[e.ID]
	if r == nil {
		if len(c.early) < 1024 {
			c.early[e.ID] = e
		}
		return
	}
	delete(c.watched, e.ID)
	r.Exited = e
	close(r.Gone)
}
