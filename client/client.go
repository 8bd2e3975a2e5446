// Package client is the Go client of Berm's HTTP API. A Client is safe for
// concurrent use. What the server sends is bounded before it is kept, and
// nothing that came out of a sandbox is written anywhere but where the caller
// said: see Extract.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// maxBody bounds every JSON answer.
const maxBody = 16 << 20

// Options say where the server is.
type Options struct {
	// Dial opens a connection to the server. Required in this version.
	Dial func(ctx context.Context) (net.Conn, error)
}

// A Client speaks to one server.
type Client struct {
	http *http.Client
	base string
}

// New returns a Client. It does no I/O.
func New(opt Options) *Client {
	tr := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return opt.Dial(ctx) },
		DisableCompression:     true,
		MaxIdleConns:           4,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: 64 << 10,
		ExpectContinueTimeout:  time.Second,
	}
	return &Client{http: &http.Client{Transport: tr, CheckRedirect: noRedirect}, base: "http://berm"}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("the server sent a redirect")
}

// do sends a request and returns the answer if it is a success.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, strings.SplitN(path, "?", 2)[0], err)
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// call sends in as JSON and decodes the answer into out; either may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	header := http.Header{}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	resp, err := c.do(ctx, method, path, body, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := bounded(resp.Body, maxBody)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what the API says: %w", method, path, err)
	}
	return nil
}

// refusal is the api.Error of an answer, whatever the answer looks like.
func refusal(resp *http.Response) error {
	b, err := bounded(resp.Body, 64<<10)
	e := &api.Error{}
	if err != nil || json.Unmarshal(b, e) != nil || e.Message == "" {
		return &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("the server answered %d without saying why", resp.StatusCode)}
	}
	return e
}

// bounded reads all of r, or fails when it is longer than n.
func bounded(r io.Reader, n int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, n+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > n {
		return nil, fmt.Errorf("the answer is longer than %d bytes", n)
	}
	return b, nil
}
