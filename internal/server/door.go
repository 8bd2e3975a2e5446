package server

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/sandbox"
)

// ours says whether a request was meant for this server. A browser that was
// led here by a foreign name (DNS rebinding) says so in Host, one that carries
// a foreign page's request in Origin. There is no CORS: no other origin has any
// business here.
func (s *server) ours(r *http.Request) error {
	if !s.hostOK(r) {
		return &api.Error{Code: api.CodeOriginForbidden, Message: "the Host header names another server", Hint: "call it by the address that it listens on, or name the host in its configuration"}
	}
	for _, o := range r.Header.Values("Origin") {
		if !sameOrigin(o, r.Host) {
			return &api.Error{Code: api.CodeOriginForbidden, Message: "requests of other origins are refused", Hint: "call it from a program, not from a page of another site"}
		}
	}
	return nil
}

func (s *server) hostOK(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, unix := local.(*net.UnixAddr); unix {
		return true // no browser gets here by a name
	}
	host := hostname(r.Host)
	if host == "localhost" {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsLoopback() {
			return true
		}
		// The address that the connection came in on: a name that was bent to
		// it would be a name here.
		if tcp, ok := local.(*net.TCPAddr); ok && tcp.AddrPort().Addr().Unmap() == ip.Unmap() {
			return true
		}
	}
	for _, h := range s.opt.Hosts {
		if host != "" && host == hostname(h) {
			return true
		}
	}
	return false
}

// hostname is a Host header without its port, in one spelling.
func hostname(hostport string) string {
	h := hostport
	if i := strings.LastIndexByte(h, ':'); i >= 0 && (strings.HasSuffix(h[:i], "]") || strings.IndexByte(h, ':') == i) {
		h = h[:i]
	}
	h = strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")
	return strings.TrimSuffix(strings.ToLower(h), ".")
}

// sameOrigin says whether an Origin is the server that a request calls.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	plain := func(h string) string {
		if u.Scheme == "http" {
			return strings.TrimSuffix(h, ":80")
		}
		return strings.TrimSuffix(h, ":443")
	}
	return strings.EqualFold(plain(u.Host), plain(host))
}

// admit says who asks.
func (s *server) admit(r *http.Request, c *call) (auth.Identity, error) {
	if s.opt.Auth == nil {
		return auth.Local, nil
	}
	token, err := tokenOf(r, c.route)
	if err == nil {
		id, bad := s.opt.Auth.Check(token)
		if bad == nil {
			return id, nil
		}
		err = &api.Error{Code: api.CodeTokenInvalid, Message: "this token is not valid", Hint: "berm token create"}
	}
	s.deny(r, c, err)
	from := remote(r)
	if !s.failures.take(from) {
		return auth.Identity{}, &api.Error{Code: api.CodeRate, Message: "too many requests without a valid token",
			Hint: "wait as long as Retry-After says, or use a valid token, which is not held up: berm token create", RetryAfter: 5}
	}
	return auth.Identity{}, err
}

// tokenOf is the token that a request shows. Where it came in the address it
// is taken out of there, before anything logs or passes the address on.
func tokenOf(r *http.Request, route api.Route) (string, error) {
	missing := &api.Error{Code: api.CodeTokenMissing, Message: "a token is needed", Hint: "send the header Authorization: Bearer TOKEN; berm token create makes one"}
	var inQuery string
	if r.Method == http.MethodGet && streams[route.Name] {
		if q := r.URL.Query(); q.Has("access_token") {
			inQuery = q.Get("access_token")
			q.Del("access_token")
			r.URL.RawQuery = q.Encode()
			r.RequestURI = r.URL.RequestURI()
		}
	}
	values := r.Header.Values("Authorization")
	switch {
	case len(values) == 0 && inQuery != "":
		return inQuery, nil
	case len(values) == 0:
		return "", missing
	case len(values) > 1:
		return "", &api.Error{Code: api.CodeTokenInvalid, Message: "there are two Authorization headers"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", missing
	}
	return token, nil
}

// forbid refuses a caller whose role is too low.
func (s *server) forbid(r *http.Request, c *call) error {
	err := &api.Error{Code: api.CodeTokenForbidden, Message: "this needs the role " + c.route.Role + ", and the token has the role " + c.who.Role,
		Hint: "berm token create --role " + c.route.Role}
	s.deny(r, c, err)
	return err
}

// node refuses whoever is not of the tenant that runs this machine: what
// follows is about all tenants.
func (s *server) node(r *http.Request) error {
	if sandbox.CallerOf(r.Context()).Tenant == api.DefaultTenant {
		return nil
	}
	return &api.Error{Code: api.CodeTokenForbidden, Message: "this is about every tenant, and only for tokens of the tenant " + api.DefaultTenant}
}

// deny puts a refusal on record. Repeated ones are counted together there.
func (s *server) deny(r *http.Request, c *call, why error) {
	tenant := c.who.Tenant
	if c.who.TokenID == "" {
		tenant = api.DefaultTenant
	}
	s.denyTo(tenant, "", r, c, why)
}

// refusals are what a handler answers whoever asks for more than is theirs.
var refusals = []string{api.CodeTokenForbidden, api.CodePolicyCeiling, api.CodePolicyWider}

// stranger puts on record that somebody has named a sandbox of another tenant:
// there, since to whoever asks it does not exist.
func (s *server) stranger(r *http.Request, c *call, id string, why error) {
	if owner := s.e.Owner(id); owner != "" && owner != c.who.Tenant {
		s.denyTo(owner, id, r, c, why)
	}
}

// denyTo records it for the people of a tenant. A sandbox is only named: whoever
// knocks must not use up what may be recorded of it.
func (s *server) denyTo(tenant, id string, r *http.Request, c *call, why error) {
	if s.opt.Store == nil {
		return
	}
	actor := cmp.Or(c.who.TokenID, "anonymous")
	code, route := public(why).Code, c.route.Name
	if route == "" {
		route = "none"
	}
	// The target is what refusals are counted by: nothing of it is the client's
	// but the id of a sandbox that there is.
	if code == api.CodeOriginForbidden && !s.hostOK(r) {
		route = "host" // another thing than a page of another origin
	}
	about := map[string]string{"target": strings.TrimSpace(code + " " + route + " " + actor + " " + id), "code": code, "route": route, "from": remote(r)}
	if id != "" {
		about["sandbox"] = id
	}
	data, err := json.Marshal(about)
	if err != nil {
		panic(err) // strings
	}
	if err := s.opt.Store.Note(api.Event{Type: api.EventDenied, Tenant: tenant, Actor: actor, Tags: map[string]string{}, Data: data}); err != nil {
		s.opt.Log.Warn("a refusal was not recorded", "request_id", c.id, "error", err)
	}
}

// remote is where a request came from, without its port.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "socket"
	}
	return host
}

// perTenant is how many times the open requests of one token all tokens of a
// tenant may have together: another tenant's find a connection free.
const perTenant = 4

// enter counts a request of a token, and bounds how many it and its tenant have
// open.
func (s *server) enter(c *call) (done func(), err error) {
	id := c.who.TokenID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] >= s.opt.Concurrent {
		return nil, &api.Error{Code: api.CodeRate, Message: "this token has too many requests open", Hint: "wait until some of them have ended", RetryAfter: 1}
	}
	tenant := c.who.Tenant
	if s.tenants[tenant] >= perTenant*s.opt.Concurrent {
		return nil, &api.Error{Code: api.CodeRate, Message: "this tenant has too many requests open", Hint: "wait until some of them have ended", RetryAfter: 1}
	}
	s.open[id]++
	s.tenants[tenant]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tenants[tenant]--; s.tenants[tenant] == 0 {
			delete(s.tenants, tenant)
		}
		if s.open[id]--; s.open[id] == 0 {
			delete(s.open, id)
		}
	}, nil
}

// opened is how many requests are open.
func (s *server) opened() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.open {
		n += m
	}
	return n
}

// A throttle bounds how often something happens, per key.
type throttle struct {
	burst, perSecond float64
	most             int // keys; the others share one
	now              func() time.Time

	mu   sync.Mutex
	keys map[string]*allowance
}

type allowance struct {
	left float64
	seen time.Time
}

// take says whether it may happen once more.
func (t *throttle) take(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	a := t.keys[key]
	if a == nil {
		if len(t.keys) >= t.most {
			for k, a := range t.keys { // whoever has it all back is as good as new
				if a.left+now.Sub(a.seen).Seconds()*t.perSecond >= t.burst {
					delete(t.keys, k)
				}
			}
		}
		if len(t.keys) >= t.most {
			key = ""
		}
		if a = t.keys[key]; a == nil {
			a = &allowance{left: t.burst, seen: now}
			t.keys[key] = a
		}
	}
	a.left = min(t.burst, a.left+now.Sub(a.seen).Seconds()*t.perSecond)
	a.seen = now
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}
