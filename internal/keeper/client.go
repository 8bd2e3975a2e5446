package keeper

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// ErrClosed says that the keeper is gone, and with it every sandbox.
var ErrClosed = errors.New("the keeper is gone")

// ErrCut says that the connection to a keeper that outlives its daemon is
// gone: the keeper may live, and its sandboxes with it.
var ErrCut = errors.New("the connection to the keeper is lost")

// ErrGone is what Attach and Control return for a sandbox that does not run.
var ErrGone = errors.New("the sandbox is gone")

// An EndedError is an ErrGone for a sandbox whose end is known.
type EndedError struct{ Exited Exited }

func (e *EndedError) Error() string        { return ErrGone.Error() + ": " + e.Exited.ID }
func (e *EndedError) Is(target error) bool { return target == ErrGone }

// A Client is the engine's end of a keeper's socket. It is safe for
// concurrent use.
type Client struct {
	conn *net.UnixConn
	done chan struct{}

	sendMu sync.Mutex

	mu      sync.Mutex // guards what follows
	seq     uint64
	lasts   bool // sandboxes outlive this connection
	waiting map[uint64]chan answer
	watched map[string][]*Running
	gateway func(id string, broker *os.File)
	early   []early // gateways that came before gateway was set
}

// An early gateway is one that nobody has asked for yet.
type early struct {
	id     string
	broker *os.File
}

// maxEarly bounds what is kept until OnGateway is called.
const maxEarly = 256

type answer struct {
	reply
	files []*os.File
}

// Running is one launched sandbox.
type Running struct {
	PID     int
	Control *os.File           // connection to its control server; after Attach it may be nil
	Agent   *os.File           // host end of the agent stream
	Upper   *os.File           // its writable layer, for Allocated
	Link    *os.File           // the guest's end of its link; nil: it has none, or after Attach
	Gauge   *jail.Gauge        // its cgroup's figures; nil: it has none
	Parts   map[string]float64 // milliseconds of each step of the launch
	Gone    chan struct{}      // closed when it has ended and nothing is left
	Exited  Exited             // once Gone is closed
}

// NewClient speaks to a keeper over conn (SOCK_SEQPACKET).
func NewClient(conn *net.UnixConn) *Client {
	c := &Client{conn: conn, done: make(chan struct{}), waiting: map[uint64]chan answer{},
		watched: map[string][]*Running{}}
	go c.read()
	return c
}

// Close ends the connection; a keeper that has one owner ends every sandbox then.
func (c *Client) Close() error { return c.conn.Close() }

// Done is closed when the connection is gone. If the keeper has one owner, all
// that was launched is gone then too; else nothing is known of it.
func (c *Client) Done() <-chan struct{} { return c.done }

// Launch starts a sandbox. spec is passed on to it as {spec}.
func (c *Client) Launch(ctx context.Context, l Launch, spec *os.File) (*Running, error) {
	r := c.watch(l.ID)
	a, err := c.call(ctx, request{Op: "launch", Launch: &l}, spec)
	if err == nil {
		err = r.take(a)
	} else if ctx.Err() == nil {
		c.unwatch(l.ID, r)
		return nil, err
	}
	if err == nil && (r.Link != nil) != l.Link {
		r.close()
		// A keeper from before there were links passes over the wish.
		err = &Refusal{Code: "egress.unavailable", Message: "the keeper that runs is older than this berm and gives no sandbox a link",
			Hint: "restart the keeper, which ends what it runs: systemctl restart berm-keeper, or stop berm serve and start it again"}
	}
	if err != nil { // it may be on its way up: nobody waits for it any more
		c.unwatch(l.ID, r)
		c.abandon(ctx, l.ID)
		return nil, err
	}
	return r, nil
}

// watch has the end of a sandbox noted from here on.
func (c *Client) watch(id string) *Running {
	r := &Running{Gone: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done: // read has run its course and will not see r
		if !c.lasts {
			r.Exited = lost(id)
			close(r.Gone)
		}
	default:
		c.watched[id] = append(c.watched[id], r)
	}
	return r
}

func (c *Client) unwatch(id string, r *Running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched[id] = slices.DeleteFunc(c.watched[id], func(x *Running) bool { return x == r })
	if len(c.watched[id]) == 0 {
		delete(c.watched, id)
	}
}

// take fills r from the answer to launch or attach.
func (r *Running) take(a answer) error {
	first := 2
	if a.Control {
		first = 3
	}
	upper := first - 1
	if a.Link {
		first++
	}
	if len(a.files) != first+len(a.Gauge) {
		closeAll(a.files)
		return errors.New("keeper: its answer is not whole")
	}
	r.PID, r.Parts = a.PID, a.Parts
	if r.Parts == nil {
		r.Parts = map[string]float64{}
	}
	if a.Control {
		r.Control = a.files[0]
	}
	r.Agent, r.Upper = a.files[upper-1], a.files[upper]
	if a.Link {
		r.Link = a.files[upper+1]
	}
	if len(a.Gauge) > 0 {
		r.Gauge = jail.GaugeOf(a.V2, a.Gauge, a.files[first:])
	}
	return nil
}

// close closes all that r has.
func (r *Running) close() {
	closeAll([]*os.File{r.Control, r.Agent, r.Upper, r.Link})
	if r.Gauge != nil {
		r.Gauge.Close()
	}
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
			err = c.loss()
		}
	} else if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		err = c.loss()
	}
	c.mu.Lock()
	delete(c.waiting, q.Seq)
	c.mu.Unlock()
	select { // an answer that came after all is nobody's
	case a := <-ch:
		closeAll(a.files)
	default:
	}
	return answer{}, err
}

func (c *Client) loss() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lasts {
		return ErrCut
	}
	return ErrClosed
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
		if e := a.Exited; e != nil && a.Seq == 0 {
			c.exited(*e)
		} else if a.Gateway != "" && a.Seq == 0 && len(files) == 1 {
			c.gatewayOf(a.Gateway, files[0])
		} else if ch := c.waiting[a.Seq]; ch != nil {
			delete(c.waiting, a.Seq)
			ch <- a
		} else {
			closeAll(files)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	for id := range c.watched {
		if !c.lasts {
			c.exited(lost(id))
		}
	}
	for _, e := range c.early {
		e.broker.Close()
	}
	c.early = nil
	close(c.done) // whoever sees it sees the ends, too
	c.mu.Unlock()
}

// OnGateway has f called for each gateway that is started for a sandbox of this
// keeper, in a goroutine of its own, with the broker's end of its socket
// (SOCK_SEQPACKET), which is f's to close. The gateway waits for a first word
// there, and is killed with this connection. Those that came before are not lost.
func (c *Client) OnGateway(f func(id string, broker *os.File)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gateway = f
	for _, e := range c.early {
		go f(e.id, e.broker)
	}
	c.early = nil
}

// gatewayOf is called with c.mu held.
func (c *Client) gatewayOf(id string, broker *os.File) {
	switch {
	case c.gateway != nil:
		go c.gateway(id, broker)
	case len(c.early) < maxEarly:
		c.early = append(c.early, early{id, broker})
	default:
		broker.Close()
	}
}

func lost(id string) Exited { return Exited{ID: id, Cause: CauseOwner, Code: -1} }

// exited is called with c.mu held.
func (c *Client) exited(e Exited) {
	for _, r := range c.watched[e.ID] {
		r.Exited = e
		close(r.Gone)
	}
	delete(c.watched, e.ID)
}
