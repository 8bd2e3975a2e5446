package registry

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	rt "github.com/bermhq/berm/internal/registry/registrytest"
)

const password = "hunter2-very-secret"

func login(ctx context.Context, registry, repository string) (Login, error) {
	return Login{Username: "joe", Password: password}, nil
}

var basic = "Basic " + base64.StdEncoding.EncodeToString([]byte("joe:"+password))

// needs has a registry give things only to who shows what is wanted.
func needs(s *rt.Server, challenge, want string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == want {
			return false
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you?\u001b[31m"}]}`)
		return true
	}
}

func TestLoginIsShown(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "team/app:1", three(t))
	t.Run("basic", func(t *testing.T) {
		s.Hook(needs(s, `Basic realm="x"`, basic))
		if _, _, err := pull(t, ref, func(o *Options) { o.Credentials = login }); err != nil {
			t.Error(err)
		}
		_, dir, err := pull(t, ref)
		wantError(t, err, dir, api.CodeRegistryDenied, "somebody without a login", "docker login "+s.Host, "who are you? [31m")
	})
	t.Run("token", func(t *testing.T) {
		asked := ""
		locked := needs(s, `Bearer realm="http://`+s.Host+`/token",service="s",scope="repository:team/app:pull"`, "Bearer good-token")
		s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/token" {
				asked = r.Header.Get("Authorization") + " " + r.URL.Query().Get("scope")
				fmt.Fprint(w, `{"token":"good-token"}`)
				return true
			}
			return locked(w, r)
		})
		if _, _, err := pull(t, ref, func(o *Options) { o.Credentials = login }); err != nil {
			t.Error(err)
		}
		if want := basic + " repository:team/app:pull"; asked != want {
			t.Errorf("the token was asked for with %q, want %q", asked, want)
		}
	})
	t.Run("a loop of 401", func(t *testing.T) {
		s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/token" {
				fmt.Fprint(w, `{"token":"never-enough"}`)
				return true
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+s.Host+`/token",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"you said %s"}]}`, password)
			return true
		})
		_, dir, err := pull(t, ref, func(o *Options) { o.Credentials = login })
		wantError(t, err, dir, api.CodeRegistryDenied, "this login", "***")
		if strings.Contains(err.Error(), password) {
			t.Errorf("the password is in %q", err)
		}
		if n := len(s.Seen()); n > 12 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("a helper that fails is told of", func(t *testing.T) {
		s.Hook(needs(s, `Basic realm="x"`, basic))
		_, dir, err := pull(t, ref, func(o *Options) {
			o.Credentials = func(context.Context, string, string) (Login, error) {
				return Login{}, fmt.Errorf("docker-credential-x: exit status 1")
			}
		})
		wantError(t, err, dir, api.CodeRegistryDenied, "docker-credential-x: exit status 1")
	})
}

// TestRealms: a registry that names a place for tokens gets no password sent
// to where it would be read by others, or to addresses of ours.
func TestRealms(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "app:1", three(t))
	for _, realm := range []string{"http://tokens.test/x", "http://169.254.169.254/latest", "file:///etc/passwd", "http://10.1.2.3/", "https://[fd00:ec2::254]/"} {
		s.Hook(needs(s, `Bearer realm="`+realm+`",service="s"`, "Bearer x"))
		_, dir, err := pull(t, ref, func(o *Options) { o.Credentials = login })
		wantError(t, err, dir, api.CodeRegistryUnreachable)
	}
}

// TestRedirects: what a registry sends elsewhere for comes from there, without
// anything that was meant for the registry.
func TestRedirects(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "app:1", three(t))
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, fmt.Sprint(r.Header["Authorization"], r.Header["Cookie"]))
		s.Real(w, r)
	}))
	defer other.Close()
	locked := needs(s, `Basic realm="x"`, basic)
	to := other.URL
	s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if locked(w, r) {
			return true
		}
		if strings.Contains(r.URL.Path, "/blobs/") {
			http.Redirect(w, r, to+r.URL.Path+"?X-Signature=signed-secret", http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	if _, _, err := pull(t, ref, func(o *Options) { o.Credentials = login }); err != nil {
		t.Fatal(err)
	}
	if len(got) < 4 || strings.Trim(strings.Join(got, ""), "[] ") != "" {
		t.Errorf("the other host saw %q", got)
	}
	for _, to = range []string{"http://blobs.test", "ftp://blobs.test", "http://[::1"} {
		_, dir, err := pull(t, ref, func(o *Options) { o.Credentials = login })
		wantError(t, err, dir, api.CodeRegistryUnreachable, s.Host)
		if strings.Contains(err.Error(), "signed-secret") {
			t.Errorf("a signature is in %q", err)
		}
	}
	to = "http://" + s.Host // round in circles
	_, dir, err := pull(t, ref, func(o *Options) { o.Credentials = login })
	wantError(t, err, dir, api.CodeTemplateInvalid, "circles")
}

func TestCheckRedirect(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		ok       bool
	}{
		{"https://registry.test/a", "https://cdn.test/b", true},
		{"https://registry.test/a", "https://192.0.2.7/b", true},
		{"https://registry.test/a", "https://10.0.0.1/b", false},
		{"https://registry.test/a", "https://[::1]:8443/b", false},
		{"https://registry.test/a", "https://169.254.169.254/b", false},
		{"https://10.0.0.1/a", "https://10.0.0.2/b", true},
	} {
		from, _ := http.NewRequest("GET", tt.from, nil)
		to, _ := http.NewRequest("GET", tt.to, nil)
		if err := checkRedirect(to, []*http.Request{from}); (err == nil) != tt.ok {
			t.Errorf("%s -> %s: %v", tt.from, tt.to, err)
		}
	}
}

func TestHostileRegistry(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "app:1", three(t))
	stop := make(chan struct{})
	defer close(stop)
	quick := func(o *Options) { o.Idle = 300 * time.Millisecond }
	stall := func(part string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, part) {
				return false
			}
			w.WriteHeader(200)
			w.Write([]byte("{"))
			w.(http.Flusher).Flush()
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return true
		}
	}
	drip := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		for {
			if _, err := w.Write([]byte("x")); err != nil || r.Context().Err() != nil {
				return true
			}
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}
	flood := func(path string, code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			junk := make([]byte, 1<<20)
			w.WriteHeader(code)
			for range 1 << 14 {
				if _, err := w.Write(junk); err != nil {
					return true
				}
			}
			return true
		}
	}
	status := func(code int, header ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			return true
		}
	}
	for _, tt := range []struct {
		name, code, word string
		hook             func(http.ResponseWriter, *http.Request) bool
	}{
		{"stalls at a layer", api.CodeRegistryUnreachable, "next to nothing", stall("/blobs/")},
		{"stalls at the manifest", api.CodeRegistryUnreachable, "next to nothing", stall("/manifests/")},
		{"stalls at once", api.CodeRegistryUnreachable, "next to nothing", stall("/v2/")},
		{"drips", api.CodeRegistryUnreachable, "next to nothing", drip},
		{"floods a complaint", api.CodeRegistryUnreachable, "answered 500", flood("/v2/app/manifests/1", 500)},
		{"has no such image", api.CodeTemplateNotFound, "does not have it", status(404)},
		{"wants peace for an hour", api.CodeRegistryUnreachable, "come back in 1h0m0s", status(429, "Retry-After", "3600")},
		{"forbids", api.CodeRegistryDenied, "docker login", status(403)},
		{"is somebody else", api.CodeRegistryUnreachable, "answered 418", status(418)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.Hook(tt.hook)
			_, dir, err := pull(t, ref, quick)
			wantError(t, err, dir, tt.code, tt.word)
		})
	}
	t.Run("comes back to its senses", func(t *testing.T) {
		n := 0
		s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			if n++; n <= 2 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader([]int{503, 429}[n-1])
				return true
			}
			return false
		})
		if _, _, err := pull(t, ref); err != nil {
			t.Error(err)
		}
	})
	t.Run("floods what nobody reads", func(t *testing.T) {
		s.Hook(flood("/v2/", 200))
		if _, _, err := pull(t, ref); err != nil {
			t.Error(err)
		}
	})
	t.Run("breaks off once", func(t *testing.T) {
		n := 0
		s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") || n > 0 {
				return false
			}
			n++
			w.Header().Set("Content-Length", r.Header.Get("X"))
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		if _, _, err := pull(t, ref); err != nil {
			t.Error(err)
		}
	})
}

func TestUnreachable(t *testing.T) {
	l := httptest.NewServer(nil)
	gone := strings.TrimPrefix(l.URL, "http://")
	l.Close()
	_, dir, err := pull(t, gone+"/app:1")
	wantError(t, err, dir, api.CodeRegistryUnreachable, "refused", "HTTPS_PROXY")

	_, dir, err = pull(t, "registry.invalid/app:1", func(o *Options) {
		o.Transport = &http.Transport{DialContext: newTransport(time.Second).DialContext}
	})
	wantError(t, err, dir, api.CodeRegistryUnreachable, "registry.invalid")

	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	_, dir, err = pull(t, "registry.test:1/app:1", func(o *Options) { o.Transport = to(secure.Listener.Addr().String()) })
	wantError(t, err, dir, api.CodeRegistryUnreachable, "certificate", "SSL_CERT_FILE")

	open := httptest.NewServer(http.NotFoundHandler())
	defer open.Close()
	for _, host := range []string{"registry.test:1", "10.1.2.3:5000", "192.168.1.1:5000"} {
		_, dir, err = pull(t, host+"/app:1", func(o *Options) { o.Transport = to(open.Listener.Addr().String()) })
		wantError(t, err, dir, api.CodeRegistryUnreachable, "--plain-http "+host)
	}
}

// to is a transport for which every host is at one address.
func to(addr string) http.RoundTripper {
	t := newTransport(5 * time.Second)
	dial := t.DialContext
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, addr) }
	return t
}

// TestPlainHTTP: only a registry that was named is spoken to without TLS.
func TestPlainHTTP(t *testing.T) {
	s := rt.Start(t)
	s.Push(t, "app:1", three(t))
	const host = "registry.test:5000"
	for _, allow := range []func(*Options){
		func(o *Options) { o.Plain = true },
		func(o *Options) { o.PlainHTTP = []string{"other.test", host} },
	} {
		if _, _, err := pull(t, host+"/app:1", allow, func(o *Options) { o.Transport = to(s.Host) }); err != nil {
			t.Error(err)
		}
	}
}

func TestNoRoom(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "app:1", three(t))
	_, _, err := pull(t, ref, func(o *Options) { o.Dir = filepath.Join(o.Dir, "missing") })
	if err == nil || strings.Contains(err.Error(), "no talking to") {
		t.Errorf("a directory that is missing: %v", err)
	}
	_, dir, err := pull(t, ref, func(o *Options) { o.MaxBytes = 10 })
	wantError(t, err, dir, api.CodeTemplateTooLarge, "10 bytes", "smaller")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pull(ctx, ref, Options{Dir: dir}); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRefs(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for in, want := range map[string]string{
		"python:3.12-slim":              "docker.io/library/python:3.12-slim",
		"alpine":                        "docker.io/library/alpine:latest",
		"docker.io/library/alpine":      "docker.io/library/alpine:latest",
		"team/app:1":                    "docker.io/team/app:1",
		"ghcr.test/a/b/c":               "ghcr.test/a/b/c:latest",
		"localhost:5000/x":              "localhost:5000/x:latest",
		"registry.test/x:1@" + digest:   "registry.test/x@" + digest,
		"x@" + digest:                   "docker.io/library/x@" + digest,
		"":                              "",
		"https://registry.test/x":       "",
		"x@sha256:abc":                  "",
		"UPPER":                         "",
		"a b":                           "",
		"x:tag:tag":                     "",
		"../../etc/passwd":              "",
		"-flag":                         "",
		strings.Repeat("a", maxRef+1):   "",
		"registry.test/x@sha512:" + "a": "",
	} {
		if got, err := Canonical(in); got != want {
			t.Errorf("Canonical(%.80q) = %q, %v; want %q", in, got, err, want)
		}
	}
}
