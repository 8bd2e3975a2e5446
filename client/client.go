// Package client is the Go client of Berm's HTTP API. A Client is safe for
// concurrent use. What the server sends is bounded before it is kept, and
// nothing that came out of a sandbox is written anywhere but where the caller
// said: see Extract.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// maxBody bounds every JSON answer.
const maxBody = 16 << 20

// Options say where the server is: Dial or URL.
type Options struct {
	// Dial opens a connection to the server.
	Dial func(ctx context.Context) (net.Conn, error)
	// URL is http://HOST[:PORT] or https://HOST[:PORT], without a path. With
	// Dial it only says what the server is called.
	URL string
	// Token is sent with every request; "" sends none.
	Token string
	// RootCAs, if not nil, are the only ones that a certificate may come from.
	RootCAs *x509.CertPool
}

// A Client speaks to one server.
type Client struct {
	http  *http.Client
	base  *url.URL
	token string
	dial  func(ctx context.Context) (net.Conn, error) // TLS included
	bad   error                                       // in Options
	quiet time.Duration                               // how long a stream of events may say nothing
}

// New returns a Client. It does no I/O; what is wrong with opt is the error of
// every call.
func New(opt Options) *Client {
	c := &Client{token: opt.Token, dial: opt.Dial, base: &url.URL{Scheme: "http", Host: "berm"}, quiet: time.Minute}
	if opt.URL != "" {
		c.base, c.bad = parseURL(opt.URL)
	} else if opt.Dial == nil {
		c.bad = errors.New("client: neither Dial nor URL says where the server is")
	}
	if c.bad == nil && strings.ContainsFunc(opt.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.bad = &api.Error{Code: api.CodeTokenInvalid, Message: "the token holds characters that no token has", Hint: "berm token create"}
	}
	if c.bad == nil && c.dial == nil {
		c.dial = dialURL(c.base)
	}
	if c.bad == nil && c.base.Scheme == "https" {
		c.dial = dialTLS(c.dial, &tls.Config{RootCAs: opt.RootCAs, ServerName: c.base.Hostname(), NextProtos: []string{"http/1.1"}})
	}
	plain := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }
	c.http = &http.Client{CheckRedirect: noRedirect, Transport: &http.Transport{
		DialContext: plain, DialTLSContext: plain,
		DisableCompression:     true,
		MaxIdleConns:           4,
		MaxIdleConnsPerHost:    4,
		MaxResponseHeaderBytes: 64 << 10,
		ExpectContinueTimeout:  time.Second,
	}}
	return c
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("URL %.100q is not http://HOST:PORT or https://HOST:PORT", s), Hint: "BERM_URL=http://127.0.0.1:7070"}
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

func dialURL(u *url.URL) func(context.Context) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addr := net.JoinHostPort(u.Hostname(), port)
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr)
	}
}

func dialTLS(dial func(context.Context) (net.Conn, error), conf *tls.Config) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		nc, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		tc := tls.Client(nc, conf)
		if err := tc.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, err
		}
		return tc, nil
	}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func noRedirect(*http.Request, []*http.Request) error {
	return errRedirect
}

var errRedirect = errors.New("the server sent a redirect")

// broken is an error of the way to the server, not of its answer.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// do sends a request and returns the answer if it is a success.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	c.sign(req)
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error // says again what is said here
		if errors.As(err, &ue) {
			err = ue.Err
		}
		err = fmt.Errorf("%s %s: %w", method, strings.SplitN(path, "?", 2)[0], err)
		if errors.Is(err, errRedirect) {
			return nil, err
		}
		return nil, broken{err}
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

func (c *Client) sign(req *http.Request) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
}

// call sends in as JSON and decodes the answer into out; either may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	return c.callWith(ctx, method, path, nil, in, out)
}

func (c *Client) callWith(ctx context.Context, method, path string, header http.Header, in, out any) error {
	var body io.Reader
	if header == nil {
		header = http.Header{}
	}
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
	return decode(resp, maxBody, out, method, path)
}

// decode reads the one JSON value of an answer.
func decode(resp *http.Response, limit int64, out any, method, path string) error {
	path, _, _ = strings.Cut(path, "?")
	b, err := bounded(resp.Body, limit)
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

// errLonger says that an answer has more bytes than may be kept.
var errLonger = errors.New("the answer is longer")

// bounded reads all of r, or fails when it is longer than n.
func bounded(r io.Reader, n int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, n+1))
	if err != nil {
		return nil, broken{err}
	}
	if int64(len(b)) > n {
		return nil, fmt.Errorf("%w than %d bytes", errLonger, n)
	}
	return b, nil
}

// tries is how often a call that may be repeated is made.
const tries = 4

// again repeats a call that is safe to repeat while the way to the server breaks.
func again(ctx context.Context, call func() error) error {
	for i := range tries {
		err := call()
		if !Broken(err) || i == tries-1 || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond << (2 * i)):
		case <-ctx.Done():
			return err
		}
	}
	return nil
}
