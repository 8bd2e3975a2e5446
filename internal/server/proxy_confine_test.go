package server

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

var testApp = &app{prefix: "/v1/sandboxes/s1/proxy/8000", host: "localhost:8000", path: "/a/b c", escaped: "/a/b%20c"}

func TestInside(t *testing.T) {
	for in, want := range map[string]string{
		"/x":                            "/x",
		"x":                             "/a/x",
		"../../../../../v1/tokens":      "/v1/tokens", // of the program's own root
		"/../v1":                        "/v1",
		"?q=1&r=%2F":                    "/a/b%20c?q=1&r=%2F",
		"#frag":                         "/a/b%20c#frag",
		"http://localhost:8000/y":       "/y",
		"https://127.0.0.1:8000/y?z":    "/y?z",
		"http://localhost:8000":         "/",
		"/\\evil.example/":              "",
		"/a%5c..":                       "",
		"//evil.example/":               "",
		"http://evil.example/":          "",
		"http://localhost:7070/v1":      "",
		"http://localhost/v1":           "",
		"http://u:p@localhost:8000/":    "",
		"http://localhost:8000:1/":      "",
		"javascript:alert(1)":           "",
		"data:text/html,x":              "",
		"http:opaque":                   "",
		"/%2e%2e/%2E%2E/%2e%2e/v1":      "",
		"/a/%2e%2e%2f%2e%2e%2fv1":       "/a/%2e%2e%2f%2e%2e%2fv1",
		"/ok\x00":                       "",
		"/line\r\nSet-Cookie: a=b":      "",
		"http://localhost:8000@evil/":   "",
		"http://[::1]:8000/":            "",
		"http://localhost:8000/\u0085x": "/%C2%85x",
	} {
		got, ok := testApp.inside(in)
		if want != "" {
			want = testApp.prefix + want
		}
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", in, got, ok, want)
		}
	}
}

func FuzzInside(f *testing.F) {
	f.Add("/x/../../..", "/a")
	f.Add("http://localhost:8000/%2e%2e", "/")
	f.Fuzz(func(t *testing.T, to, at string) {
		a := *testApp
		a.path, a.escaped = "/"+at, (&url.URL{Path: "/" + at}).EscapedPath()
		got, ok := a.inside(to)
		if !ok {
			return
		}
		path, _, _ := strings.Cut(got, "?")
		path, _, _ = strings.Cut(path, "#")
		if !strings.HasPrefix(path, a.prefix+"/") || strings.Contains(path, "\\") || strings.ContainsAny(got, "\r\n") {
			t.Fatalf("%q leads to %q", to, got)
		}
		// However often a client resolves and decodes, it stays below.
		u, err := url.Parse("http://berm" + got)
		if err != nil || u.Host != "berm" || !strings.HasPrefix(u.JoinPath().EscapedPath(), a.prefix+"/") {
			t.Fatalf("%q leads to %q: %v", to, got, err)
		}
	})
}

func TestCookies(t *testing.T) {
	for in, want := range map[string]string{
		"a=b": "a=b; Path=/v1/sandboxes/s1/proxy/8000/",
		"a=b; Path=/x; Domain=berm.example; Secure": "a=b; Path=/v1/sandboxes/s1/proxy/8000/x; Secure",
		"a=b; Path=/../../..; HttpOnly":             "a=b; Path=/v1/sandboxes/s1/proxy/8000/; HttpOnly",
		"a=b; Path=relative":                        "a=b; Path=/v1/sandboxes/s1/proxy/8000/",
		"berm_session=x":                            "",
		"BERM=x":                                    "",
		"__Host-a=b; Secure; Path=/":                "",
		"":                                          "",
		"no name":                                   "",
		"a=b; Path=/; SameSite=None; Partitioned":    "a=b; Path=/v1/sandboxes/s1/proxy/8000/; SameSite=None; Partitioned",
		"a=b; Max-Age=10; Expires=nonsense; Weird=1": "a=b; Path=/v1/sandboxes/s1/proxy/8000/; Max-Age=10",
	} {
		if got := testApp.cookie(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestConfine(t *testing.T) {
	h := http.Header{}
	for _, line := range []string{
		"Content-Security-Policy: script-src 'unsafe-inline'", "Access-Control-Allow-Origin: *", "Clear-Site-Data: \"*\"",
		"Service-Worker-Allowed: /", "Strict-Transport-Security: max-age=1", "Refresh: 0; url=/v1", "X-Request-Id: forged",
		"Location: /next", "Set-Cookie: a=b; Path=/", "Set-Cookie: berm=1", "Content-Type: text/html", "X-App: 1",
	} {
		k, v, _ := strings.Cut(line, ": ")
		h.Add(k, v)
	}
	for range 100 {
		h.Add("Set-Cookie", "many=1")
	}
	testApp.confine(&http.Response{Header: h})
	if got := strings.Join(h.Values("Content-Security-Policy"), "|"); !strings.HasSuffix(got, "|sandbox") {
		t.Errorf("policy %q", got)
	}
	if h.Get("Location") != testApp.prefix+"/next" || h.Get("X-App") != "1" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", h)
	}
	if n := len(h.Values("Set-Cookie")); n > maxAppCookies {
		t.Errorf("%d cookies", n)
	}
	for _, k := range []string{"Access-Control-Allow-Origin", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Refresh", "X-Request-Id"} {
		if h.Get(k) != "" {
			t.Errorf("%s is left: %q", k, h.Get(k))
		}
	}
}

func TestRewrite(t *testing.T) {
	in := httptest.NewRequest("POST", "http://127.0.0.1:7070/v1/sandboxes/s1/proxy/8000/a/b%20c?access_token=t&x=%2F&Access_Token=u&y", nil)
	for k, v := range map[string]string{
		"Authorization": "Bearer t", "Proxy-Authorization": "x", "X-Api-Key": "t", "Cookie": "berm_session=1; mine=2; BERM=3",
		"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4", "Origin": "http://127.0.0.1:7070", "Referer": "http://x/?access_token=t", "X-Mine": "1",
	} {
		in.Header.Set(k, v)
	}
	out := in.Clone(in.Context())
	out.Header.Del("X-Forwarded-For") // as ReverseProxy does
	testApp.rewrite(&httputil.ProxyRequest{In: in, Out: out})
	if got := out.URL.String(); got != "http://localhost:8000/a/b%20c?x=%2F&y" || out.Host != "localhost:8000" {
		t.Errorf("%s %s", got, out.Host)
	}
	for k, want := range map[string]string{
		"Authorization": "", "Proxy-Authorization": "", "X-Api-Key": "", "Forwarded": "", "Referer": "", "Cookie": "mine=2",
		"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Host": "127.0.0.1:7070", "X-Forwarded-Proto": "http",
		"X-Forwarded-Prefix": testApp.prefix, "Origin": "http://localhost:8000", "X-Mine": "1",
	} {
		if got := out.Header.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
}
