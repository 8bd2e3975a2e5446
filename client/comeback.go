package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bermhq/berm/api"
)

const (
	// AwayFor is how long a server may be gone before ExecKept gives up.
	AwayFor = 30 * time.Second
	// killWithin is how long an end that was asked for is waited for.
	killWithin = 10 * time.Second
	retryEvery = 250 * time.Millisecond
)

// Adrift says that the way to a command broke after the server had taken it.
// What became of the command is not known.
type Adrift struct {
	ExecID string // "": it belonged to its connection, and ends with it
	Ended  bool   // it was ended, because it could not go on
	Err    error
}

func (a *Adrift) Error() string { return a.Err.Error() }

func (a *Adrift) Unwrap() error { return a.Err }

// errDeaf says that the caller's writers took nothing for too long.
var errDeaf = errors.New("exec: nobody took the output")

// ExecKept is Exec for a command without a terminal that outlives its
// connection. Each time that breaks ExecKept says so to away, and comes back to the
// command at the byte where it was, for as long as AwayFor. What was not told to
// have reached the program of its standard input cannot be sent again: then
// it is ended. A caller that is gone for good ends it 10 s later.
func (c *Client) ExecKept(ctx context.Context, id string, req api.ExecRequest, sio Stdio, away func(why error)) (api.ExecResult, error) {
	req.ExecID = cmp.Or(req.ExecID, api.NewID(api.KindExec))
	x, err := newExecution(req, sio)
	if err != nil {
		return api.ExecResult{}, err
	}
	return x.finish(ctx, func() (api.ExecResult, error) {
		res, err := x.once(ctx, c, id)
		if Broken(err) && ctx.Err() == nil && !x.out.failed() && x.out.idle() < deafAfter {
			var dial *net.OpError
			if !x.began && errors.As(err, &dial) && dial.Op == "dial" {
				return res, err // nothing was asked
			}
			if away == nil {
				away = func(error) {}
			}
			res, err = x.comeBack(ctx, c, id, err, away)
		}
		if err == nil || errors.As(err, new(*api.Error)) || errors.As(err, new(*Adrift)) {
			return res, err
		}
		// Whoever asked for it is leaving, and the server cannot know that.
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWithin)
		defer cancel()
		if kerr := c.KillExec(kctx, id, req.ExecID); kerr != nil && !errors.As(kerr, new(*api.Error)) {
			err = &Adrift{ExecID: req.ExecID, Err: err}
		}
		return res, err
	})
}

// comeBack goes on with a command whose connection broke.
func (x *execution) comeBack(ctx context.Context, c *Client, id string, why error, away func(error)) (res api.ExecResult, err error) {
	exec, gone := x.req.ExecID, time.Now()
	away(why)
	for {
		began, from := time.Now(), x.at
		x.mu.Lock()
		fed := x.fed
		x.mu.Unlock()
		switch {
		case !x.began: // asked for again under its id it runs once
			res, err = x.once(ctx, c, id)
		case fed:
			res, err = x.follow(ctx, c, id)
		default:
			if err = c.KillExec(ctx, id, exec); err == nil {
				return res, &Adrift{ExecID: exec, Ended: true, Err: fmt.Errorf("%w, and what had been read of its input is not known", why)}
			}
		}
		var ae *api.Error
		switch {
		case err == nil || ctx.Err() != nil || x.out.failed() || errors.Is(err, errDeaf):
			return res, err
		case errors.As(err, &ae) && ae.Code == api.CodeExecNotFound && x.at == 0 && !x.req.Stdin:
			x.began = false // nor was it decided
		case errors.As(err, &ae) && !x.began:
			return res, err
		case errors.As(err, &ae):
			return x.told(ctx, c, id, err)
		case !Broken(err):
			return res, err
		}
		if x.at > from || time.Since(began) > AwayFor { // it had been back
			gone = time.Now()
			away(err)
		}
		if time.Since(gone) > AwayFor {
			return res, &Adrift{ExecID: exec, Err: err}
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return res, context.Cause(ctx)
		}
	}
}

// follow takes the output from where it broke, and how the command ended.
func (x *execution) follow(ctx context.Context, c *Client, id string) (api.ExecResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.onCut(cancel)
	defer x.onCut(nil)
	info, err := c.Follow(ctx, id, x.req.ExecID, x.at, true, func(ch api.Chunk) error {
		if ch.Offset-ch.Gap != x.at {
			return fmt.Errorf("exec: the server sent output from %d on, and %d came next", ch.Offset-ch.Gap, x.at)
		}
		if x.out.idle() >= deafAfter {
			return errDeaf
		}
		if ch.Gap > 0 {
			x.lost(ch.Gap)
		}
		w := x.sio.Stdout
		if ch.Stream == "stderr" {
			w = x.sio.Stderr
		}
		x.put(w, ch.Data)
		return nil
	})
	switch {
	case err != nil:
		return api.ExecResult{}, err
	case info.Result == nil:
		return api.ExecResult{}, broken{errors.New("exec: the server left before the end")}
	}
	return *info.Result, nil
}

// told is how a command ended whose output cannot be had any more.
func (x *execution) told(ctx context.Context, c *Client, id string, why error) (api.ExecResult, error) {
	info, err := c.GetExec(ctx, id, x.req.ExecID)
	if err != nil || info.Result == nil {
		return api.ExecResult{}, &Adrift{ExecID: x.req.ExecID, Err: why}
	}
	res := *info.Result
	res.Reason = cmp.Or(res.Reason, why.Error())
	return res, nil
}
