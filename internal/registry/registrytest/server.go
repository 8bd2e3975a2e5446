package registrytest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A Server is a registry. Hook sees every request of a client first and says
// whether it has answered; nil: nothing is answered otherwise than it should.
type Server struct {
	Host string // 127.0.0.1:PORT

	mu   sync.Mutex
	hook func(http.ResponseWriter, *http.Request) bool
	seen []Seen
	real http.Handler
}

// Seen is a request that came.
type Seen struct {
	Method, Path, Authorization string
}

// Start serves a registry without images until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{real: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.Host = strings.TrimPrefix(h.URL, "http://")
	return s
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hook := s.hook
	s.seen = append(s.seen, Seen{r.Method, r.URL.Path, r.Header.Get("Authorization")})
	s.mu.Unlock()
	if hook != nil && hook(w, r) {
		return
	}
	s.real.ServeHTTP(w, r)
}

// Hook has every request from now on seen by f; nil: by nobody.
func (s *Server) Hook(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook, s.seen = f, nil
}

// Seen lists what was asked since the last Hook.
func (s *Server) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

// Real answers a request as a registry does.
func (s *Server) Real(w http.ResponseWriter, r *http.Request) { s.real.ServeHTTP(w, r) }

// Push keeps an image under a repository and tag, and returns the reference.
func (s *Server) Push(t testing.TB, as string, img v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(s.Host+"/"+as, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// PushIndex is Push for several platforms.
func (s *Server) PushIndex(t testing.TB, as string, index v1.ImageIndex) string {
	t.Helper()
	ref, err := name.ParseReference(s.Host+"/"+as, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// Tampered answers requests for a path that ends in suffix with what change
// makes of the true answer's body. With chunks, no length is announced.
func (s *Server) Tampered(suffix string, chunks bool, change func([]byte) []byte) {
	s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, suffix) || r.Method != http.MethodGet {
			return false
		}
		rec := httptest.NewRecorder()
		s.real.ServeHTTP(rec, r)
		body := change(rec.Body.Bytes())
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		if chunks {
			w.(http.Flusher).Flush()
		}
		w.Write(body)
		return true
	})
}
