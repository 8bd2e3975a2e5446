package server

import (
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// origin are the headers with which an answer would change what a browser does
// with this whole server, or with other callers of it.
var origin = []string{
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age", "Access-Control-Allow-Private-Network",
	"Strict-Transport-Security", "Public-Key-Pins", "Expect-Ct", "Alt-Svc", "Clear-Site-Data", "Service-Worker-Allowed",
	"Accept-Ch", "Critical-Ch", "Nel", "Report-To", "Reporting-Endpoints", "Origin-Agent-Cluster", "Origin-Trial", "Set-Login",
	"Refresh", "Speculation-Rules", "Www-Authenticate", "Proxy-Authenticate", "X-Request-Id",
}

const maxAppCookies = 64

// confine makes of a program's answer one that cannot act in the name of this
// server: a browser runs nothing of it, and it cannot lead out of its own path.
func (a *app) confine(resp *http.Response) error {
	h := resp.Header
	h.Del("Trailer")
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Trailer = nil
		resp.Body = &untrailed{resp.Body, resp}
	}
	for _, name := range origin {
		h.Del(name)
	}
	h.Add("Content-Security-Policy", "sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	for _, name := range []string{"Location", "Content-Location"} {
		if v := h.Get(name); v != "" {
			h.Del(name)
			if to, ok := a.inside(v); ok {
				h.Set(name, to)
			}
		}
	}
	cookies := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range cookies[:min(len(cookies), maxAppCookies)] {
		if c := a.cookie(line); c != "" {
			h.Add("Set-Cookie", c)
		}
	}
	return nil
}

// untrailed is a body whose end brings no more headers: nothing confines those.
type untrailed struct {
	io.ReadCloser
	resp *http.Response
}

func (u *untrailed) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if err != nil {
		u.resp.Trailer = nil
	}
	return n, err
}

func (u *untrailed) Close() error {
	err := u.ReadCloser.Close() // may read to the end
	u.resp.Trailer = nil
	return err
}

// inside turns an address of a program into the one that it has here. An
// address of anything else is none: a client that follows it would take its
// token to where a program inside sends it.
func (a *app) inside(to string) (string, bool) {
	base := &url.URL{Scheme: "http", Host: a.host, Path: a.path, RawPath: a.escaped}
	u, err := base.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Opaque != "" {
		return "", false
	}
	name, port, _ := strings.Cut(u.Host, ":")
	_, own, _ := strings.Cut(a.host, ":")
	if name != "localhost" && name != "127.0.0.1" || port != own {
		return "", false
	}
	p := u.EscapedPath()
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	for part := range strings.SplitSeq(p, "/") { // a dot that is escaped is one to some
		if s, err := url.PathUnescape(part); err != nil || s == ".." || strings.ContainsAny(s, "\\") {
			return "", false
		}
	}
	out := a.prefix + p
	if u.RawQuery != "" {
		out += "?" + u.RawQuery
	}
	if f := u.EscapedFragment(); f != "" {
		out += "#" + f
	}
	return out, true
}

// cookie keeps a cookie to the program's own path; "" if it is none.
func (a *app) cookie(line string) string {
	c, err := http.ParseSetCookie(line)
	if err != nil || ourCookie(c.Name) || strings.HasPrefix(strings.ToLower(c.Name), "__host-") {
		return ""
	}
	c.Domain = ""
	if !strings.HasPrefix(c.Path, "/") {
		c.Path = "/"
	}
	c.Path = a.prefix + path.Clean(c.Path)
	return c.String()
}
