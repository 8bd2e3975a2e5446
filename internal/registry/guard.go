package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of what is said to a registry and waited for.
const (
	maxTries      = 4
	firstWait     = 500 * time.Millisecond
	maxRetryAfter = 20 * time.Second // a registry that wants more is told of, not waited for
	maxAnswer     = 1 << 20          // of what is neither manifest nor blob: tokens, complaints
	maxRedirects  = 5
)

var (
	errPlain    = errors.New("it would be spoken to without TLS")
	errAnswer   = errors.New("the answer is longer than an answer of its kind may be")
	errStalled  = errors.New("nothing came for too long")
	errRedirect = errors.New("redirected too often, or to a private address")
)

// newTransport is HTTP with the proxies and the certificates of whoever
// started this process.
func newTransport(idle time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    15 * time.Second,
		ResponseHeaderTimeout:  idle,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true, // blobs are compared as they are
	}
}

// A guard stands below the library's handshakes: whatever they ask goes over
// TLS or to where plain HTTP was allowed, is asked again a few times where that
// may help, and is answered with few bytes unless the context allows more.
type guard struct {
	next  http.RoundTripper
	plain func(host string) bool
	pause func(context.Context, time.Duration) error
	idle  time.Duration // within which something must come
}

// lengthKey marks a context with the most bytes that an answer may have.
type lengthKey struct{}

func withLength(ctx context.Context, n int64) context.Context {
	return context.WithValue(ctx, lengthKey{}, n)
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" && (req.URL.Scheme != "http" || !g.plain(req.URL.Host)) {
		return nil, fmt.Errorf("%s: %w", clean(req.URL.Host, 100), errPlain)
	}
	most, ok := req.Context().Value(lengthKey{}).(int64)
	if !ok {
		most = maxAnswer
	}
	for try := 1; ; try++ {
		resp, err := g.once(req, most)
		wait, again := retry(resp, err, try)
		if again && req.Body != nil && req.Body != http.NoBody {
			if req.GetBody == nil {
				again = false
			} else if body, bodyErr := req.GetBody(); bodyErr != nil {
				again = false
			} else {
				req = req.Clone(req.Context())
				req.Body = body
			}
		}
		if !again {
			return resp, err
		}
		if resp != nil {
			io.CopyN(io.Discard, resp.Body, 4096)
			resp.Body.Close()
		}
		if err := g.pause(req.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// once asks once, and watches what comes.
func (g *guard) once(req *http.Request, most int64) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	b := &body{left: most, ctx: ctx, cancel: cancel}
	b.watch(g.idle)
	resp, err := g.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		defer b.end()
		return nil, because(ctx, err)
	}
	b.inner, resp.Body = resp.Body, b
	return resp, nil
}

// retry says whether to ask again, and after how long.
func retry(resp *http.Response, err error, try int) (time.Duration, bool) {
	if try >= maxTries {
		return 0, false
	}
	wait := firstWait << (try - 1)
	wait += rand.N(wait / 4)
	if err != nil {
		return wait, transient(err)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return wait, true
	case http.StatusTooManyRequests:
		asked, ok := retryAfter(resp)
		return max(wait, asked), !ok || asked <= maxRetryAfter
	}
	return 0, false
}

// retryAfter is how long a registry asks to be left alone.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	text := resp.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return time.Until(at), true
	}
	return 0, false
}

// transient says whether a connection broke in a way that may have been
// chance. A refused one, an unknown name and a bad certificate are answers.
func transient(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsTemporary && !dns.IsNotFound && !dns.IsTimeout
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// because prefers the reason why a context ended to its echo in an error.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// least is how many bytes of an answer must come within an idle time.
const least = 1024

// A body ends in an error rather than go on for ever, or stand still.
type body struct {
	inner  io.ReadCloser
	left   int64
	ctx    context.Context
	cancel context.CancelCauseFunc
	n      atomic.Int64 // bytes so far
	mu     sync.Mutex
	timer  *time.Timer
}

// watch ends the request when less than least bytes come in an idle time.
func (b *body) watch(idle time.Duration) {
	var last int64
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(idle, func() {
		n := b.n.Load()
		if n-last < least {
			b.cancel(errStalled)
			return
		}
		last = n
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.ctx.Err() == nil {
			b.timer.Reset(idle)
		}
	})
}

func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errAnswer
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.inner.Read(p)
	b.n.Add(int64(n))
	if b.left -= int64(n); b.left < 0 {
		return 0, errAnswer
	}
	if err != nil && err != io.EOF {
		err = because(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.inner.Close()
}

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer.Stop()
	b.cancel(nil)
}

// checkRedirect lets a registry send a request on, but not from the internet
// to an address of ours. The library sends credentials to the registry alone.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errRedirect
	}
	if from, to := via[0].URL.Host, req.URL.Host; from != to && isPrivate(to) && !isPrivate(from) {
		return errRedirect
	}
	return nil
}
