package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

const (
	// maxAppHeader bounds the header that a program inside may answer with.
	maxAppHeader = 64 << 10
	// appSilent is how long a program inside may take to begin its answer.
	appSilent = 10 * time.Minute
)

func (s *server) proxyRoutes() map[string]handler {
	return map[string]handler{
		"sandbox.ports": s.ports,
		"sandbox.proxy": s.proxy,
		"sandbox.dial":  s.dialPort,
	}
}

// ports lists what listens inside.
func (s *server) ports(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	list, err := s.e.Ports(r.Context(), id)
	if err != nil {
		return err
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	out := []api.Port{}
	for _, p := range list {
		u := url.URL{Scheme: scheme, Host: r.Host, Path: proxyPrefix(id, p) + "/"}
		out = append(out, api.Port{Port: p, Listening: true, Source: "detected", ProxyURL: u.String()})
	}
	reply(w, http.StatusOK, out)
	return nil
}

func proxyPrefix(id string, port int) string {
	return "/v1/sandboxes/" + id + "/proxy/" + strconv.Itoa(port)
}

func portOf(r *http.Request) (int, error) {
	v := r.PathValue("port")
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != v {
		return 0, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("%.20q is no port", v), Hint: "a number from 1 to 65535"}
	}
	return n, nil
}

// proxy passes a request on to a program inside, and its answer back. Neither
// side of that is trusted with the other's secrets: the token does not go in,
// and what comes out cannot act in the name of this server.
func (s *server) proxy(w http.ResponseWriter, r *http.Request) error {
	port, err := portOf(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := s.find(r.Context(), id); err != nil {
		return err
	}
	a := &app{prefix: proxyPrefix(id, port), host: "localhost:" + strconv.Itoa(port)}
	tail := callOf(r).tail
	if a.path, err = url.PathUnescape(tail); err != nil {
		return &api.Error{Code: api.CodeBadRequest, Message: "the path cannot be decoded"}
	}
	if a.path == "" {
		a.path, tail = "/", "/"
	}
	a.escaped = tail

	// A connection per request: nothing of one caller's is left for the next.
	tr := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return s.e.Dial(r.Context(), id, port)
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAppHeader,
		ResponseHeaderTimeout:  appSilent,
	}
	defer tr.CloseIdleConnections()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = pacedBody{s.stream(w, r), r.Body}
	}
	ctx, cancel := r.Context(), context.CancelCauseFunc(func(error) {})
	if r.Header.Get("Upgrade") != "" { // it may have no end
		ctx, cancel = s.untilStop(ctx, 0)
	}
	defer cancel(nil)
	ctx = fewInterim(ctx)
	var failed error
	p := &httputil.ReverseProxy{
		Transport:      tr,
		Rewrite:        a.rewrite,
		ModifyResponse: a.confine,
		ErrorLog:       log.New(io.Discard, "", 0),
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	p.ServeHTTP(appWriter{w, callOf(r).id}, r.WithContext(ctx))
	return proxyError(failed, port)
}

// maxInterim is how many interim answers a program may give before its own.
const maxInterim = 16

var errInterim = errors.New("it gives interim answers without end")

func fewInterim(ctx context.Context) context.Context {
	n := 0 // only the goroutine that reads from the program touches it
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		if n++; n > maxInterim {
			return errInterim
		}
		return nil
	}})
}

// An appWriter passes no interim answer on: nothing confines those. Passing one
// on would also clear the headers that the edge has set.
type appWriter struct {
	http.ResponseWriter
	id string
}

func (a appWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.Header().Set("X-Request-Id", a.id)
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a appWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

type pacedBody struct {
	io.Reader
	io.Closer
}

// proxyError is what a caller gets to know of an app that did not answer.
func proxyError(err error, port int) error {
	var ae *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ae), errors.Is(err, context.Canceled):
		return err
	}
	return &api.Error{Code: api.CodePortClosed, Message: fmt.Sprintf("the program on port %d gave no answer that can be passed on: %.200s", port, calm(err.Error()))}
}

// An app is a program inside, as seen through the proxy.
type app struct {
	prefix        string // of its addresses on this server
	host          string // what it is called as
	path, escaped string // of this request
}

// secrets are the headers that are for this server and not for a program.
var secrets = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Forwarded", "X-Real-Ip"}

func (a *app) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.URL = &url.URL{Scheme: "http", Host: a.host, Path: a.path, RawPath: a.escaped, RawQuery: withoutToken(p.In.URL.RawQuery)}
	out.Host = a.host
	for _, h := range secrets {
		out.Header.Del(h)
	}
	dropCookies(out.Header)
	p.SetXForwarded()
	out.Header.Set("X-Forwarded-Prefix", a.prefix)
	// Programs compare Origin with Host. Ours was compared before.
	if o, err := url.Parse(out.Header.Get("Origin")); err == nil && o.Host != "" && strings.EqualFold(o.Host, p.In.Host) {
		out.Header.Set("Origin", "http://"+a.host)
	}
	out.Header.Del("Referer") // may hold a token
}

// withoutToken takes our parameter out of a query and leaves the rest as it is.
func withoutToken(query string) string {
	parts := strings.Split(query, "&")
	kept := parts[:0]
	for _, p := range parts {
		name, _, _ := strings.Cut(p, "=")
		if n, err := url.QueryUnescape(name); err == nil && strings.EqualFold(n, "access_token") {
			continue
		}
		kept = append(kept, p)
	}
	return strings.Join(kept, "&")
}

// ourCookie says whether a cookie is this server's own, or would pass for one.
func ourCookie(name string) bool { return strings.HasPrefix(strings.ToLower(name), "berm") }

func dropCookies(h http.Header) {
	var kept []string
	for _, line := range h.Values("Cookie") {
		for c := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(c), "=")
			if name != "" && !ourCookie(strings.TrimSpace(name)) {
				kept = append(kept, strings.TrimSpace(c))
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
}
