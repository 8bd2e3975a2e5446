package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// Bounds of one event of a stream.
const (
	maxLine  = 1 << 20
	maxEvent = 2 << 20
)

// errQuiet says that a stream brought nothing for longer than a server may be
// silent.
var errQuiet = errors.New("the server is silent")

// stream opens a route that answers with server-sent events and gives each to
// f, until f returns an error or the stream ends; io.EOF from f is a good end.
// An event called error is the error. A stream that ends or breaks before f
// says so is broken.
func (c *Client) stream(ctx context.Context, path string, f func(name string, data []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := c.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	path, _, _ = strings.Cut(path, "?")
	if t := resp.Header.Get("Content-Type"); !strings.HasPrefix(t, "text/event-stream") {
		return fmt.Errorf("GET %s: the server sent %.40q instead of events", path, t)
	}
	timer := time.AfterFunc(c.quiet, func() { cancel(errQuiet) })
	defer timer.Stop()
	err = readEvents(resp.Body, func() { timer.Reset(c.quiet) }, func(name string, data []byte) error {
		timer.Stop() // f may take its time
		defer timer.Reset(c.quiet)
		if name == "error" {
			return streamError(data)
		}
		return f(name, data)
	})
	switch {
	case err == io.EOF:
		return nil
	case ctx.Err() != nil && context.Cause(ctx) != errQuiet:
		return context.Cause(ctx)
	case ctx.Err() != nil:
		err = broken{errQuiet}
	case err == nil:
		err = broken{io.ErrUnexpectedEOF}
	}
	var ae *api.Error
	if errors.As(err, &ae) {
		return err
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

func streamError(data []byte) error {
	e := &api.Error{}
	if json.Unmarshal(data, e) != nil || e.Message == "" {
		return &api.Error{Code: api.CodeHostFailure, Message: "the server failed without saying why"}
	}
	return e
}

// readEvents parses a stream; moved is called whenever something came. It
// returns nil when the stream ends.
func readEvents(body io.Reader, moved func(), f func(name string, data []byte) error) error {
	r := bufio.NewReaderSize(body, 32<<10)
	var name string
	var data []byte
	var has bool
	for {
		line, err := boundedLine(r, maxLine)
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if errors.Is(err, errLonger) {
			return err
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return broken{err}
		}
		moved()
		if len(line) == 0 {
			if has {
				if err := f(name, data); err != nil {
					return err
				}
			}
			name, data, has = "", data[:0], false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(data)+len(value) > maxEvent {
				return fmt.Errorf("%w than %d bytes", errLonger, maxEvent)
			}
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		}
	}
}
