package guest

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A call is one stream: a request, data both ways, one reply.
type call struct {
	c       *Client
	id      uint32
	method  int
	mute    bool
	in      *Inbox
	send    *Window
	replied chan struct{} // closed when reply is there
	reply   Reply
	exit    Exit        // of a start
	info    ProcessInfo // of an attach
	cur     Piece       // handed to the reader, given back at its next read
	again   bool        // cur was only looked at
	giveUp  sync.Once
	gaveUp  atomic.Bool
	stopped bool // the guest wants no more data; the reader's own
	ended   bool // the guest sends no more; likewise

	began     time.Time
	sightings int                  // the reader's own
	seen      atomic.Pointer[Exit] // the latest
}

// open sends a request. The call stays open until its reply or cancel.
func (c *Client) open(ctx context.Context, method int, body []byte) (*call, error) {
	return c.openAs(ctx, method, false, body)
}

// openAs is open for a call that may be mute: no data comes, whatever its method.
func (c *Client) openAs(ctx context.Context, method int, mute bool, body []byte) (*call, error) {
	ca := &call{
		c: c, method: method, mute: mute,
		in:      NewInbox(c.opt.Window),
		send:    NewWindow(HostWindow),
		replied: make(chan struct{}),
		began:   time.Now(),
	}
	o := Open{Method: method, Window: c.opt.Window, Body: body}
	req := o.Append(nil)
	if len(req) > MaxOpen {
		return nil, &Error{Op: "call", Errno: 7, Text: "arguments too long"} // E2BIG
	}
	c.mu.Lock()
	if len(c.calls) >= c.limit(method) {
		c.mu.Unlock()
		return nil, ErrBusy
	}
	c.last++
	ca.id = c.last
	c.calls[ca.id] = ca
	c.mu.Unlock()
	var b []byte
	for {
		n := min(splitAt(req[:min(len(req), MaxFrame)]), MaxFrame)
		kind := byte(KindOpenPart)
		if n == len(req) {
			kind = KindOpen
		}
		b = AppendFrame(b, c.epoch, ca.id, kind, req[:n])
		if req = req[n:]; len(req) == 0 {
			break
		}
	}
	if err := c.queue(ctx, outFrame{b: b}); err != nil {
		c.mu.Lock()
		delete(c.calls, ca.id)
		c.mu.Unlock()
		return nil, err
	}
	return ca, nil
}

// limit is how many calls may be open before one of this method. What lasts as
// long as somebody likes leaves room for the rest, and what ends something finds
// room whatever is open.
func (c *Client) limit(method int) int {
	switch method {
	case MethodAttach, MethodDial, MethodStdin, MethodWatch:
		return (c.opt.MaxStreams*3 + 3) / 4
	case MethodKill, MethodTell:
		return c.opt.MaxStreams + 8
	}
	return c.opt.MaxStreams
}

// begin makes a call that goes on for long, and waits until the guest says that
// it has begun (an empty piece of data) or why not.
func (c *Client) begin(ctx context.Context, method int, op, what string, body []byte) (*call, error) {
	ca, err := c.open(ctx, method, body)
	if err != nil {
		return nil, err
	}
	switch _, _, err = ca.next(ctx); err {
	case nil:
		ca.again = true
	case io.EOF:
		if err := ca.err(op, what); err != nil {
			return nil, err
		}
	default:
		ca.cancel()
		return nil, err
	}
	return ca, nil
}

// data takes the body of a data frame off the wire, within the window.
func (ca *call) data(r *hostReader, kind byte, n int) error {
	switch ca.method {
	case MethodList, MethodGlob, MethodRead, MethodTarOut, MethodProcs, MethodDial, MethodWatch, MethodChanges:
		if kind != KindData {
			return protocolError("data out of place")
		}
	case MethodStart:
		if kind == KindGap || ca.mute {
			return protocolError("data out of place")
		}
	case MethodAttach:
		if kind == KindGap && (n == 0 || n > 10) {
			return protocolError("malformed gap")
		}
	case MethodWait, MethodStdin: // a word that it has begun
		if kind != KindData || n != 0 {
			return protocolError("data out of place")
		}
	default:
		return protocolError("data out of place")
	}
	ch, ok := ca.in.Reserve(kind, n)
	if !ok {
		return protocolError("more data than the window allows")
	}
	if err := r.full(ch.B); err != nil {
		return err
	}
	ca.in.Put(ch)
	return nil
}

// How many sightings one process may send: some at once, and then no faster
// than this, which is twice what an agent sends.
const (
	sightingsAtOnce = 64
	sightingsApart  = 50 * time.Millisecond
	maxSighting     = 256 // bytes
)

// sighting takes what was seen of a running process. Only the latest is kept,
// and a flood of them is cut, so they cost no more than they are worth.
func (ca *call) sighting(r *hostReader, n int) error {
	if ca.method != MethodStart && ca.method != MethodWait || n > maxSighting {
		return protocolError("sighting out of place")
	}
	if ca.sightings++; ca.sightings > sightingsAtOnce+int(time.Since(ca.began)/sightingsApart) {
		return protocolError("more sightings than there is time for")
	}
	body, err := r.peek(n)
	if err != nil {
		return err
	}
	r.lo += n
	e := new(Exit)
	if !e.Decode(body) || !e.onlySeen() {
		return protocolError("malformed sighting")
	}
	ca.seen.Store(e)
	return nil
}

// finish takes the reply and frees the stream.
func (ca *call) finish(body []byte) error {
	if !ca.reply.Decode(body) {
		return protocolError("malformed reply")
	}
	refused := ca.reply.Errno != 0 || ca.reply.Text != ""
	switch ca.method {
	case MethodStart: // refused only where the host itself gave up
		if !ca.exit.Decode(ca.reply.Body) || refused && !ca.gaveUp.Load() {
			return protocolError("malformed exit")
		}
	case MethodWait:
		if !refused && !ca.exit.Decode(ca.reply.Body) {
			return protocolError("malformed exit")
		}
	case MethodAttach:
		if !refused && !ca.info.Decode(ca.reply.Body) {
			return protocolError("malformed end of output")
		}
		if !ca.info.Running {
			ca.exit = ca.info.Exit
		}
	}
	c := ca.c
	c.mu.Lock()
	delete(c.calls, ca.id)
	for i := range c.owed {
		if c.owed[i].stream == ca.id {
			c.owed = append(c.owed[:i], c.owed[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	close(ca.replied)
	ca.send.Close()
	ca.in.End()
	return nil
}

// cancel gives up on a call. What still arrives for it is dropped; the stream
// is free once the guest has replied.
func (ca *call) cancel() {
	select {
	case <-ca.replied:
		return
	default:
	}
	ca.giveUp.Do(ca.abandon)
}

func (ca *call) abandon() {
	ca.gaveUp.Store(true)
	ca.in.Drop()
	ca.send.Close()
	b := AppendFrame(nil, ca.c.epoch, ca.id, KindCancel, nil)
	select {
	case ca.c.out <- outFrame{b: b}:
	case <-ca.c.done:
	default:
		// The guest does not read. It must not hold up the caller either.
		go ca.c.queue(context.Background(), outFrame{b: b})
	}
}

// next returns the next chunk of data, valid until the following call; io.EOF
// after the reply.
func (ca *call) next(ctx context.Context) (byte, []byte, error) {
	if ca.again {
		ca.again = false
		return ca.cur.Kind, ca.cur.B, nil
	}
	if ca.cur.cost != 0 {
		ca.c.grant(ca.id, ca.in.Done(ca.cur))
		ca.cur = Piece{}
	}
	for {
		ch, ok, ended := ca.in.Take()
		if ok {
			ca.cur = ch
			return ch.Kind, ch.B, nil
		}
		if ended {
			return 0, nil, io.EOF
		}
		select {
		case <-ca.in.Ready():
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-ca.c.done:
			// What arrived before the end is still worth having.
			if ch, ok, _ := ca.in.Take(); ok {
				ca.cur = ch
				return ch.Kind, ch.B, nil
			}
			return 0, nil, ca.c.err
		}
	}
}

// wait waits for the reply; after ctx it cancels the call.
func (ca *call) wait(ctx context.Context) error {
	select {
	case <-ca.replied:
		return nil
	default:
	}
	select {
	case <-ca.replied:
		return nil
	case <-ctx.Done():
		ca.cancel()
		return ctx.Err()
	case <-ca.c.done:
		return ca.c.err
	}
}

// room waits until up to n bytes may be sent. It returns 0 when the guest
// wants no more.
func (ca *call) room(ctx context.Context, n int) (int, error) {
	for {
		take, wait, closed := ca.send.Use(n)
		if take > 0 || closed {
			return take, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-ca.c.done:
			return 0, ca.c.err
		}
	}
}

// put sends b, copied, as fast as the guest takes it. It returns how much went
// out: less than all without an error when the guest wants no more.
func (ca *call) put(ctx context.Context, b []byte) (n int, err error) {
	for clean := 0; n < len(b); {
		if clean == 0 {
			clean = splitAt(b[n:])
		}
		take, err := ca.room(ctx, clean)
		if err != nil || take == 0 {
			return n, err
		}
		if err := ca.copyOut(ctx, b[n:n+take]); err != nil {
			return n, err
		}
		n += take
		clean -= take
	}
	return n, nil
}

// copyOut queues one data frame for which there is room.
func (ca *call) copyOut(ctx context.Context, b []byte) error {
	p := takeBuf(HeaderSize + len(b))
	copy((*p)[HeaderSize:], b)
	return ca.c.queue(ctx, outFrame{b: (*p)[:HeaderSize+len(b)], pool: p, stream: ca.id})
}

// end says that no more data comes.
func (ca *call) end(ctx context.Context) error {
	return ca.c.queue(ctx, outFrame{b: AppendFrame(nil, ca.c.epoch, ca.id, KindEnd, nil)})
}

// upload sends all of r, reading straight into the buffers that go out. An
// early reply of the guest ends it without error: the reply says why.
func (ca *call) upload(ctx context.Context, r io.Reader) error {
	for {
		p := takeBuf(MaxChunk)
		n, err := fill(r, (*p)[HeaderSize:])
		if n > 0 {
			if more, err := ca.pass(ctx, p, n); err != nil || !more {
				return err
			}
		} else {
			giveBuf(p)
		}
		if err == io.EOF {
			return ca.end(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// fill is io.ReadFull, but an end is io.EOF wherever it comes: what a source
// itself calls unexpected is no end.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = r.Read(p[n:])
		n += k
	}
	return n, err
}

// pass sends the n bytes in p after its header, p itself if it may go as it is.
// It owns p. more is false when the guest wants no more.
func (ca *call) pass(ctx context.Context, p *[]byte, n int) (more bool, err error) {
	body, sent := (*p)[HeaderSize:HeaderSize+n], 0
	if splitAt(body) == n {
		sent, err = ca.room(ctx, n)
		switch {
		case err != nil || sent == 0:
		case sent == n:
			return true, ca.c.queue(ctx, outFrame{b: (*p)[:HeaderSize+n], pool: p, stream: ca.id})
		default:
			err = ca.copyOut(ctx, body[:sent])
		}
		if err != nil || sent == 0 {
			giveBuf(p)
			return false, err
		}
	}
	k, err := ca.put(ctx, body[sent:])
	giveBuf(p)
	return sent+k == n, err
}

// err is the reply as an error.
func (ca *call) err(op, path string) error {
	if ca.reply.Errno == 0 && ca.reply.Text == "" {
		return nil
	}
	return &Error{Op: op, Path: path, Errno: ca.reply.Errno, Text: ca.reply.Text}
}
