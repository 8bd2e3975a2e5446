package template

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
)

// A Client is the Service of another process, which runs Serve on the other end
// of its socket. It needs no rights: no files, and no calls that make sockets.
type Client struct {
	mu   sync.Mutex // one call at a time asks for its socket
	conn *net.UnixConn
	last byte // the number of the last time it did

	// Begun is told when the other process is known to have ended and to have
	// been started again; nil: nobody is. Calls that ran have failed.
	Begun func()
}

// NewClient takes over a socket of type seqpacket.
func NewClient(c *net.UnixConn) *Client { return &Client{conn: c} }

var _ Service = (*Client)(nil)

// Close ends the connection, and with it every call.
func (c *Client) Close() error { return c.conn.Close() }

func gone(err error) error {
	return &api.Error{Code: api.CodeHostFailure, Message: "the process that keeps templates does not answer: " + err.Error(), Hint: "run the same again"}
}

// openFor is how long the other process may take to see that it is asked.
const openFor = 15 * time.Second

// open asks for a socket of this call's own. What was asked of a process that has
// ended meanwhile is asked again.
func (c *Client) open(ctx context.Context) (*net.UnixConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil { // while others asked
		return nil, err
	}
	c.conn.SetDeadline(time.Now().Add(openFor))
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)); close(over) })
	defer func() {
		if !stop() {
			<-over // or it would end the next one's wait
		}
	}()
	if err := c.ask(); err != nil {
		return nil, err
	}
	for {
		var b [1]byte
		n, f, err := hearFile(c.conn, b[:])
		switch {
		case err != nil || n != 1:
			if err == nil {
				err = errors.New("an empty answer")
			}
		case b[0] == begun:
			if c.Begun != nil {
				c.Begun()
			}
			err = c.ask()
		case b[0] == c.last && f != nil:
			return jail.Conn(f)
		}
		if f != nil { // of a call that gave up
			f.Close()
		}
		if err != nil {
			return nil, err
		}
	}
}

// ask asks for a socket under a new number.
func (c *Client) ask() error {
	if c.last++; c.last == begun {
		c.last++
	}
	_, err := c.conn.Write([]byte{c.last})
	return err
}

// call makes one call. file goes with the request and is closed.
func (c *Client) call(ctx context.Context, r request, file *os.File, progress func(api.TemplateProgress)) (answer, error) {
	if file != nil {
		defer func() { file.Close() }()
	}
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	conn, err := c.open(ctx)
	if ctx.Err() != nil {
		if conn != nil {
			conn.Close()
		}
		return answer{}, ctx.Err()
	}
	if err != nil {
		return answer{}, gone(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	b, err := json.Marshal(r)
	if err != nil {
		return answer{}, err
	}
	if len(b) > maxRequest {
		return answer{}, &api.Error{Code: api.CodeBadRequest, Message: "the request is too long", Hint: "name fewer things at once"}
	}
	if err = sendFile(conn, b, file); err == nil && file != nil {
		file.Close() // the other side has it now; a pipe must end with it
	}
	var a answer
	if err == nil {
		a, err = hearAnswer(conn, progress)
	}
	switch {
	case ctx.Err() != nil:
		return answer{}, ctx.Err()
	case err != nil:
		return answer{}, gone(err)
	case a.Error != nil:
		return answer{}, a.Error
	case a.Cancelled:
		return answer{}, context.Canceled
	}
	return a, nil
}

// Resolve finds the root of a name.
func (c *Client) Resolve(ctx context.Context, name string) (image.Root, error) {
	a, err := c.call(ctx, request{Call: "resolve", Name: name}, nil, nil)
	if err == nil && a.Root == nil {
		err = gone(errors.New("an empty answer"))
	}
	if err != nil {
		return image.Root{}, err
	}
	return *a.Root, nil
}

// List returns all templates.
func (c *Client) List(ctx context.Context) ([]api.Template, error) {
	a, err := c.call(ctx, request{Call: "list"}, nil, nil)
	return a.Templates, err
}

// Get says all there is to say of one template.
func (c *Client) Get(ctx context.Context, name string) (api.Template, error) {
	a, err := c.call(ctx, request{Call: "get", Name: name}, nil, nil)
	if err == nil && a.Template == nil {
		err = gone(errors.New("an empty answer"))
	}
	if err != nil {
		return api.Template{}, err
	}
	return *a.Template, nil
}

// Remove forgets a name.
func (c *Client) Remove(ctx context.Context, name string) error {
	_, err := c.call(ctx, request{Call: "remove", Name: name}, nil, nil)
	return err
}

// Cached is the root that a Job with this Key made.
func (c *Client) Cached(ctx context.Context, key string) (image.Root, bool) {
	a, err := c.call(ctx, request{Call: "cached", Name: key}, nil, nil)
	if err != nil || !a.OK || a.Root == nil {
		return image.Root{}, false
	}
	return *a.Root, true
}

// Do makes what a Job asks for.
func (c *Client) Do(ctx context.Context, job Job, in io.Reader, progress func(api.TemplateProgress)) (Made, error) {
	theirs, fed, err := feed(in)
	if err != nil {
		return Made{}, err
	}
	a, err := c.call(ctx, request{Call: "do", Job: &job, In: theirs != nil}, theirs, progress)
	if ferr := fed(); ferr != nil && ctx.Err() == nil {
		return Made{}, unread(ctx, ferr) // its end was no end
	}
	if err == nil && a.Made == nil {
		err = gone(errors.New("an empty answer"))
	}
	if err != nil {
		return Made{}, err
	}
	return *a.Made, nil
}

// feed makes a reader one that another process can read from. fed is called when
// that one reads no more; it says why what it read is not all.
func feed(in io.Reader) (theirs *os.File, fed func() error, err error) {
	if in == nil {
		return nil, func() error { return nil }, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() {
		// In messages, so that an end that is an error can be told from a good one.
		buf := make([]byte, maxPart)
		for {
			n, err := in.Read(buf)
			if n > 0 {
				if err := writePart(w, buf[:n]); err != nil {
					done <- nil // nobody wants more
					w.Close()
					return
				}
			}
			if err == io.EOF {
				writePart(w, nil)
				err = nil
			} else if err == nil {
				continue
			}
			done <- err
			w.Close()
			return
		}
	}()
	return r, func() error {
		select {
		case err := <-done:
			return err
		default:
			return nil
		}
	}, nil
}

// Export writes a template as an archive.
func (c *Client) Export(ctx context.Context, name, format string, out io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, r)
		if err != nil {
			r.Close()
		}
		copied <- err
	}()
	_, err = c.call(ctx, request{Call: "export", Name: name, Format: format, In: true}, w, nil)
	if err != nil {
		r.Close()
	}
	if cerr := <-copied; err == nil && cerr != nil {
		err = cerr
	}
	return err
}
