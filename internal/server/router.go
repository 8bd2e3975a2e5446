package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
)

// The router serves api.Routes and nothing else. It never redirects and never
// cleans a path: clients repeat a redirected POST as a GET, and a path that
// means something after cleaning is a path that another check saw otherwise.

// A pattern is one route, split at its slashes.
type pattern struct {
	route  api.Route
	parts  []string // literals, and {names}
	tail   bool     // the last part takes all that follows
	handle handler  // nil: this part of Berm is missing
}

// A router finds the patterns of a path.
type router struct {
	bySize map[int][]*pattern // by number of parts
	tails  []*pattern
}

func newRouter(routes []api.Route, handlers map[string]handler) *router {
	rt := &router{bySize: map[int][]*pattern{}}
	for _, r := range routes {
		p := &pattern{route: r, parts: strings.Split(r.Path[1:], "/"), handle: handlers[r.Name]}
		if last := p.parts[len(p.parts)-1]; strings.HasSuffix(last, "...}") {
			p.tail = true
			p.parts = p.parts[:len(p.parts)-1]
			rt.tails = append(rt.tails, p)
			continue
		}
		rt.bySize[len(p.parts)] = append(rt.bySize[len(p.parts)], p)
	}
	for _, ps := range rt.bySize { // a literal goes before a name, wherever they first differ
		slices.SortStableFunc(ps, func(a, b *pattern) int {
			for i := range a.parts {
				if x, y := isName(a.parts[i]), isName(b.parts[i]); x != y {
					if x {
						return 1
					}
					return -1
				}
			}
			return 0
		})
	}
	return rt
}

func isName(part string) bool { return part[0] == '{' }

// A match is what the router found for a request.
type match struct {
	*pattern
	values map[string]string
	tail   string   // what follows a pattern with a tail, escaped as it came, with its slash
	allow  []string // the methods of the path, where none of them is the request's
}

// find returns the route of a request. Without one it says why: the error is
// for a client that showed its token.
func (rt *router) find(method string, u *url.URL) (match, error) {
	raw, parts, err := split(u.EscapedPath())
	if err != nil {
		return match{}, err
	}
	var allow []string
	try := func(p *pattern, tail string) (match, bool) {
		values, ok := p.bind(parts)
		if !ok {
			return match{}, false
		}
		if p.route.Method == method || p.route.Method == "ANY" || method == http.MethodHead && p.route.Method == http.MethodGet && !streams[p.route.Name] {
			return match{pattern: p, values: values, tail: tail}, true
		}
		allow = append(allow, p.route.Method)
		if p.route.Method == http.MethodGet && !streams[p.route.Name] {
			allow = append(allow, http.MethodHead)
		}
		return match{}, false
	}
	for _, p := range rt.tails {
		if n := len(p.parts); len(parts) >= n && !slices.ContainsFunc(raw[:n], encodedSlash) {
			tail := ""
			if len(parts) > n {
				tail = "/" + strings.Join(raw[n:], "/")
			}
			if m, ok := try(p, tail); ok {
				return m, nil
			}
		}
	}
	if !slices.Contains(parts, "") {
		for _, p := range rt.bySize[len(parts)] {
			if !p.takes(raw) {
				continue
			}
			if m, ok := try(p, ""); ok {
				return m, nil
			}
		}
	}
	if len(allow) > 0 {
		slices.Sort(allow)
		return match{allow: slices.Compact(allow)}, &api.Error{Code: api.CodeMethod, Message: "the method " + clip(method) + " is not offered here", Hint: "use " + strings.Join(slices.Compact(allow), " or ")}
	}
	return match{}, &api.Error{Code: api.CodeNoRoute, Message: clip(method) + " " + clip(u.Path) + " is not a route", Hint: "GET /v1/routes lists them"}
}

// takes says whether an encoded slash is only where one may be: in the name of
// a template, which has them.
func (p *pattern) takes(raw []string) bool {
	for i, part := range raw {
		if encodedSlash(part) && p.parts[i] != "{name}" {
			return false
		}
	}
	return true
}

// bind gives the names of p their values.
func (p *pattern) bind(parts []string) (map[string]string, bool) {
	values := map[string]string{}
	for i, want := range p.parts {
		switch {
		case parts[i] == "":
			return nil, false
		case isName(want):
			values[want[1:len(want)-1]] = parts[i]
		case want != parts[i]:
			return nil, false
		}
	}
	return values, true
}

// split cuts an escaped path at its slashes, and decodes the parts.
func split(path string) (raw, parts []string, err error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil, nil, &api.Error{Code: api.CodeNoRoute, Message: "the path does not start with a slash"}
	}
	raw = strings.Split(rest, "/")
	parts = make([]string, len(raw))
	for i, p := range raw {
		s, err := url.PathUnescape(p)
		if err != nil || s == "." || s == ".." || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return nil, nil, &api.Error{Code: api.CodeBadRequest, Message: "the path holds a part that no route takes: dots, control characters or bytes that are not UTF-8"}
		}
		parts[i] = s
	}
	return raw, parts, nil
}

func encodedSlash(part string) bool { return strings.Contains(strings.ToLower(part), "%2f") }

// clip bounds what of a request goes into an answer.
func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}

// streams are the routes that a browser's EventSource or WebSocket can open:
// neither can send a header, so these take ?access_token= as well. They have
// no HEAD, since they have no end.
var streams = map[string]bool{
	"events": true, "sandbox.events": true, "sandbox.logs": true, "exec.ws": true,
	"exec.pty": true, "exec.output": true, "fs.watch": true, "template.build.logs": true,
}
