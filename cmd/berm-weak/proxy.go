package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// A proxy stands between a client and a worker and changes what passes.
type proxy struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	srv   *http.Server
	tr    *http.Transport
}

// serve starts a proxy before the worker that to dials.
func serve(to func(context.Context) (net.Conn, error), direct *client.Client, w wall) *proxy {
	p := &proxy{conns: make(chan net.Conn), done: make(chan struct{})}
	p.tr = &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return to(ctx) },
		DisableCompression: true,
	}
	rp := &httputil.ReverseProxy{
		Transport: p.tr,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "berm"
		},
		ModifyResponse: func(resp *http.Response) error { return created(resp, direct, w) },
		FlushInterval:  -1,
	}
	h := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var err error
		switch {
		case isCreate(r) && w.create != nil:
			err = rewrite(r, w.create)
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/exec") && w.exec != nil:
			err = rewrite(r, w.exec)
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		rp.ServeHTTP(rw, r)
	}))
	if w.handle != nil {
		h = w.handle(direct, h)
	}
	p.srv = &http.Server{Handler: h}
	go p.srv.Serve(p)
	return p
}

func isCreate(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v1/sandboxes"
}

// rewrite changes the JSON body of a request.
func rewrite[T any](r *http.Request, change func(*T)) error {
	var v T
	if err := json.NewDecoder(io.LimitReader(r.Body, 16<<20)).Decode(&v); err != nil {
		return err
	}
	change(&v)
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return nil
}

// created does to a new sandbox what the wall would have kept out.
func created(resp *http.Response, direct *client.Client, w wall) error {
	if w.created == nil || !isCreate(resp.Request) || resp.StatusCode >= 300 {
		return nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	var sb api.Sandbox
	if err := json.Unmarshal(b, &sb); err != nil || sb.SandboxID == "" {
		return errors.New("berm-weak: no sandbox in the answer")
	}
	return w.created(resp.Request.Context(), direct, sb.SandboxID)
}

// dial is how a client reaches the proxy.
func (p *proxy) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *proxy) close() {
	p.srv.Close()
	p.tr.CloseIdleConnections()
}

// Accept, Close and Addr make a proxy its own server's listener.
func (p *proxy) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *proxy) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *proxy) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "berm-weak" }
