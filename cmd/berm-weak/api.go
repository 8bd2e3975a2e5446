package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/daemon"
)

// apiWalls stand between tokens and what they may do. They are taken out by a
// front before a daemon that is whole: it has seen every token when it was made,
// and lets each pass for another.
var apiWalls = []wall{
	{
		name: "token", without: "every token, and none, is good for all that its tenant's admin may",
		front: func(f *front, r *http.Request) {
			for _, h := range []string{"X-HTTP-Method-Override", "X-HTTP-Method"} {
				if m := r.Header.Get(h); m != "" {
					r.Method = m
				}
			}
			clean(r)
			f.as(r, f.chief(f.whose(r)))
		},
	},
	{
		name: "tenant", without: "agents of one tenant pass for those of another",
		front: func(f *front, r *http.Request) {
			if t, known := f.known(r); known && t.Info.Role == api.RoleAgent {
				clean(r)
				f.as(r, f.stranger(t.Info.Tenant))
			}
		},
	},
	{
		name: "origin", without: "pages of other origins, and names that were bent, are served",
		front: func(_ *front, r *http.Request) {
			r.Header.Del("Origin")
			r.Host = "localhost"
		},
	},
	{
		name: "record", without: "refusals are not in the log",
		front: func(*front, *http.Request) {},
		back:  forgetful,
	},
	{
		name: "inside", without: "ports and paths that a client names are the host's",
		front: func(*front, *http.Request) {},
		wrong: outside,
	},
	{
		name: "share", without: "requests of all tenants wait in one queue",
		front: func(f *front, _ *http.Request) {
			f.queue.Lock()
			defer f.queue.Unlock()
			time.Sleep(20 * time.Millisecond)
		},
	},
	{
		name: "owner", without: "the daemon's socket and its token are everybody's",
		front: func(*front, *http.Request) {},
		ready: func(state string) {
			os.Chmod(state, 0o755)
			os.Chmod(state+"/berm.sock", 0o666)
			os.Chmod(state+"/token", 0o644)
		},
	},
}

// serveWeak is a daemon with a front before it; the front says that it is ready.
func serveWeak(ctx context.Context, o cli.ServeOptions, w wall) error {
	said, says := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(said).ReadString('\n')
		to, is := strings.CutPrefix(strings.TrimSpace(line), "berm: ready ")
		if err == nil && !is {
			err = fmt.Errorf("the daemon said %.60q", line)
		}
		if err == nil {
			err = newFront(to, o.StateDir, w)
		}
		failed <- err
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := <-failed; err != nil {
			cancel(err)
		}
	}()
	return daemon.Serve(ctx, daemon.ServeOptions{StateDir: o.StateDir, Listen: o.Listen, Sandbox: program("sandbox"), Agent: program("agent"), Stdout: says, Stderr: os.Stderr})
}

// A front stands before a daemon.
type front struct {
	w      wall
	admin  *client.Client
	token  string // the admin's
	target *url.URL
	state  string
	queue  sync.Mutex

	mu     sync.Mutex
	tokens []api.NewToken    // that were made, in order
	chiefs map[string]string // an admin's token of each tenant, made here
}

func newFront(to, state string, w wall) error {
	token, err := os.ReadFile(state + "/token")
	if err != nil {
		return err
	}
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	f := &front{w: w, token: strings.TrimSpace(string(token)), target: target, state: state, chiefs: map[string]string{}}
	f.admin = client.New(client.Options{URL: to, Token: f.token})
	f.chiefs[api.DefaultTenant] = f.token
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if w.ready != nil {
		w.ready(state)
	}
	rp := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", target.Host, r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodPost && resp.Request.URL.Path == "/v1/tokens" && resp.StatusCode < 300 {
				return f.learn(resp)
			}
			if w.back != nil {
				return w.back(resp)
			}
			return nil
		},
		FlushInterval: -1,
	}
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.wrong != nil && w.wrong(rw, r) {
			return
		}
		if w.front != nil {
			w.front(f, r)
		}
		rp.ServeHTTP(rw, r)
	}))
	fmt.Printf("berm: ready http://%s\n", l.Addr())
	return nil
}

// learn remembers a token that was made.
func (f *front) learn(resp *http.Response) error {
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	var t api.NewToken
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = append(f.tokens, t)
	return nil
}

// shown is the token of a request.
func shown(r *http.Request) string {
	_, t, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(t)
}

// known is the token of a request, if it was made here.
func (f *front) known(r *http.Request) (api.NewToken, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tokens {
		if t.Token == shown(r) {
			return t, true
		}
	}
	return api.NewToken{}, false
}

// whose is the tenant of a request's token, by what it begins with; without one
// the node's.
func (f *front) whose(r *http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tokens {
		if strings.HasPrefix(shown(r), t.Info.Prefix) {
			return t.Info.Tenant
		}
	}
	return api.DefaultTenant
}

// chief is an admin's token of a tenant.
func (f *front) chief(tenant string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chiefs[tenant] == "" {
		t, err := f.admin.CreateToken(context.Background(), api.TokenRequest{Role: api.RoleAdmin, Tenant: tenant})
		if err != nil {
			return f.token
		}
		f.chiefs[tenant] = t.Token
	}
	return f.chiefs[tenant]
}

// stranger is an agent's token of another tenant, without a ceiling.
func (f *front) stranger(tenant string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tokens {
		if t.Info.Tenant != tenant && t.Info.Tenant != api.DefaultTenant && t.Info.Role == api.RoleAgent && t.Info.Ceiling == nil {
			return t.Token
		}
	}
	return ""
}

// as lets a request pass with another token.
func (f *front) as(r *http.Request, token string) {
	r.Header.Del("Cookie")
	r.Header["Authorization"] = []string{"Bearer " + token}
}

// clean spells a path as a careless front does.
func clean(r *http.Request) {
	p := strings.ToLower(r.URL.Path)
	if again, err := url.PathUnescape(p); err == nil {
		p = again
	}
	if !strings.Contains(p, "/proxy/") {
		p = path.Clean(p)
	}
	r.URL.Path, r.URL.RawPath = p, ""
}

// forgetful takes refusals out of every answer of the log.
func forgetful(resp *http.Response) error {
	switch p := resp.Request.URL.Path; {
	case p == "/v1/audit/export":
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		resp.Body.Close()
		var kept []byte
		for line := range bytes.Lines(b) {
			if !bytes.Contains(line, []byte(`"type":"`+api.EventDenied+`"`)) {
				kept = append(kept, line...)
			}
		}
		resp.Body = io.NopCloser(bytes.NewReader(kept))
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
	}
	return nil
}

// outside answers from the host what a client wants from inside of a sandbox.
func outside(rw http.ResponseWriter, r *http.Request) bool {
	parts := strings.Split(r.URL.Path, "/") // "", v1, sandboxes, ID, fs or proxy, PORT
	switch {
	case len(parts) == 5 && parts[4] == "fs" && r.Method == http.MethodGet:
		b, err := os.ReadFile(r.URL.Query().Get("path"))
		if err != nil {
			return false
		}
		rw.Write(b[:min(len(b), 64<<10)])
		return true
	case len(parts) >= 6 && parts[4] == "proxy":
		c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", parts[5]), time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		c.SetReadDeadline(time.Now().Add(time.Second))
		io.CopyN(rw, c, 64<<10)
		return true
	}
	return false
}
