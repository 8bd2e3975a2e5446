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
	"os/exec"
	"os/signal"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack"
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
		name: "tenant", without: "agents with a ceiling pass for one of another tenant",
		front: func(f *front, r *http.Request) {
			if t, known := f.known(r); known && t.Info.Role == api.RoleAgent && t.Info.Ceiling != nil && f.reaches(r, t.Info.Tenant) {
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
		// They hold, and are unseen: that is what the log is for.
		quiet: func(c attack.Case) bool { return c.Family == "api" && len(c.Denied) > 0 },
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
		ahead: `until [ -S "$0/berm.sock" ] && [ -s "$0/token" ]; do sleep 0.05; done; chmod 755 "$0"; chmod 666 "$0/berm.sock"; chmod 644 "$0/token"`,
	},
}

// serveWeak is a daemon with a front before it; the front says that it is ready.
func serveWeak(ctx context.Context, o cli.ServeOptions, w wall) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT) // an end without order leaves its sandboxes
	defer stop()
	if w.ahead != "" { // while there are the rights to
		if err := exec.Command("sh", "-c", w.ahead, o.StateDir).Start(); err != nil {
			return err
		}
	}
	said, says := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(said).ReadString('\n')
		to, is := strings.CutPrefix(strings.TrimSpace(line), "berm: ready ")
		if err == nil && !is {
			err = fmt.Errorf("the daemon said %.60q", line)
		}
		if err == nil {
			err = newFront(to, w)
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
	opt := daemon.ServeOptions{StateDir: o.StateDir, Listen: o.Listen, Sandbox: program("sandbox"), Agent: program("agent"), Stdout: says, Stderr: os.Stderr}
	if w.daemon != nil {
		w.daemon(&opt)
	}
	return daemon.Serve(ctx, opt)
}

// A front stands before a daemon.
type front struct {
	target *url.URL
	queue  sync.Mutex

	mu     sync.Mutex
	admin  *client.Client    // with the token of the first request: whoever starts a daemon asks first
	tokens []api.NewToken    // that were made, in order
	chiefs map[string]string // an admin's token of each tenant, made here
	things map[string]string // by what may be named of a tenant, whose it is
}

func newFront(to string, w wall) error {
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	f := &front{target: target, chiefs: map[string]string{}, things: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
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
			if resp.Request.Method == http.MethodPost && resp.StatusCode < 300 {
				return f.note(resp)
			}
			if w.back != nil {
				return w.back(resp)
			}
			return nil
		},
		FlushInterval: -1,
	}
	go http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f.meet(bearer(r))
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

// meet remembers whose the first token was.
func (f *front) meet(token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.admin == nil {
		f.admin = client.New(client.Options{URL: f.target.String(), Token: token})
		f.chiefs[api.DefaultTenant] = token
	}
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

// note remembers what somebody made.
func (f *front) note(resp *http.Response) error {
	if p := resp.Request.URL.Path; p != "/v1/sandboxes" && p != "/v1/workspaces" {
		return nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(b))
	var made struct {
		Sandbox string `json:"sandbox_id"`
		Tree    string `json:"workspace_id"`
	}
	json.Unmarshal(b, &made)
	t, _ := f.known(resp.Request)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range []string{made.Sandbox, made.Tree, t.Info.Tenant} {
		if id != "" {
			f.things[id] = t.Info.Tenant
		}
	}
	return nil
}

// bearer is the token of a request.
func bearer(r *http.Request) string {
	_, t, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(t)
}

// known is the token of a request, if it was made here.
func (f *front) known(r *http.Request) (api.NewToken, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tokens {
		if t.Token == bearer(r) {
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
		if strings.HasPrefix(bearer(r), t.Info.Prefix) {
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
			return ""
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

// reaches says whether a request is one that another tenant answers otherwise:
// it names something of theirs, or lists what there is. A sandbox that it names
// beside its own is the one that it means.
func (f *front) reaches(r *http.Request, tenant string) bool {
	b, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	lists := r.Method == http.MethodGet && slices.Contains([]string{"/v1/sandboxes", "/v1/events", "/v1/top"}, r.URL.Path)
	text := strings.ToLower(r.URL.RawQuery + fmt.Sprint(r.Header) + string(b))
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, owner := range f.things {
		if owner == tenant {
			continue
		}
		if strings.Contains(text, id) {
			parts := strings.Split(r.URL.Path, "/")
			if len(parts) > 3 && f.things[parts[3]] == tenant {
				parts[3] = id
				r.URL.Path, r.URL.RawPath = strings.Join(parts, "/"), ""
			}
			return true
		}
		if p, _ := url.PathUnescape(strings.ToLower(r.URL.Path)); strings.Contains(p, id) {
			return true
		}
	}
	return lists
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
