package keeper

import (
	"context"
	"errors"
	"os"
)

// Hello greets the keeper. It must be the first call where the keeper outlives
// its daemon; from its answer on the daemon before this one is cut.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	return c.HelloAs(ctx, "")
}

// HelloAs is Hello by an engine whose gateways are in a runtime of its own: a
// gateway and its broker are of one build then, whatever build the sandbox is
// of, and what they say to each other may change from one to the next.
func (c *Client) HelloAs(ctx context.Context, gateway string) (Hello, error) {
	a, err := c.call(ctx, request{Op: "hello", Version: Version, Oldest: oldest, Gateway: gateway})
	if err != nil {
		return Hello{}, err
	}
	if a.Hello == nil || a.Hello.Version < oldest || a.Hello.Version > Version {
		return Hello{}, errors.New("keeper: it does not speak our protocol")
	}
	c.mu.Lock()
	c.lasts = a.Hello.Mode.lasts()
	c.mu.Unlock()
	return *a.Hello, nil
}

// List names the sandboxes that run, and those that ended and were not yet
// forgotten, each in the order of their names.
func (c *Client) List(ctx context.Context) (held []Held, ended []Exited, err error) {
	// What ends between the two is in the second, or in both.
	for after, more := "", true; more; {
		a, err := c.call(ctx, request{Op: "list", ID: after})
		if err != nil {
			return nil, nil, err
		}
		held = append(held, a.Held...)
		if more = a.More && len(a.Held) > 0; more {
			after = a.Held[len(a.Held)-1].ID
		}
	}
	for after, more := "", true; more; {
		a, err := c.call(ctx, request{Op: "ended", ID: after})
		if err != nil {
			return nil, nil, err
		}
		ended = append(ended, a.Past...)
		if more = a.More && len(a.Past) > 0; more {
			after = a.Past[len(a.Past)-1].ID
		}
	}
	return held, ended, nil
}

// Forget says that the end of a sandbox has been noted for good.
func (c *Client) Forget(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{Op: "forget", ID: id})
	return err
}

// Attach gets the descriptors of a sandbox that runs, as Launch does. One that
// has ended is an ErrGone, and an EndedError where its end is known.
func (c *Client) Attach(ctx context.Context, id string) (*Running, error) {
	r := c.watch(id)
	a, err := c.call(ctx, request{Op: "attach", ID: id})
	if err == nil {
		err = a.alive()
	}
	if err == nil {
		err = r.take(a)
	}
	if err != nil {
		c.unwatch(id, r)
		return nil, err
	}
	return r, nil
}

// alive is ErrGone where an answer says so.
func (a answer) alive() error {
	if !a.Gone {
		return nil
	}
	closeAll(a.files)
	if a.Exited != nil {
		return &EndedError{Exited: *a.Exited}
	}
	return ErrGone
}

// Control makes a fresh connection to a sandbox's control server.
func (c *Client) Control(ctx context.Context, id string) (*os.File, error) {
	a, err := c.call(ctx, request{Op: "control", ID: id})
	if err == nil {
		err = a.alive()
	}
	if err != nil {
		return nil, err
	}
	if len(a.files) != 1 {
		closeAll(a.files)
		return nil, errors.New("keeper: its answer is not whole")
	}
	return a.files[0], nil
}

// Pause has no process of a sandbox use the processor from its return on. Its
// deadline holds, and it can be stopped. A paused one is no error.
func (c *Client) Pause(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{Op: "pause", ID: id})
	return err
}

// Resume has a paused sandbox go on. One that runs is no error.
func (c *Client) Resume(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{Op: "resume", ID: id})
	return err
}

// Shutdown ends every sandbox and returns when they are gone. A keeper that
// lingers ends itself then.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: "shutdown"})
	return err
}
