package client

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func listenIn(t *testing.T, dir string, h http.HandlerFunc) {
	t.Chdir(dir) // the name may be longer than a socket's may be
	l, err := net.Listen("unix", "berm.sock")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
}

func TestDiscover(t *testing.T) {
	t.Setenv("BERM_URL", "")
	t.Setenv("BERM_TOKEN", "")
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("long", 40))} {
		os.Mkdir(dir, 0o700)
		var none *NoDaemon
		if _, err := Discover(dir, "", ""); !errors.As(err, &none) || none.Dir != dir {
			t.Errorf("nobody listens: %v", err)
		}
		got := make(chan string, 8)
		listenIn(t, dir, func(w http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") })
		for _, tt := range []struct{ file, env, arg, want string }{
			{"", "", "", ""}, {"e2b_file\n", "", "", "Bearer e2b_file"}, {"e2b_file\n", " e2b_env\n", "", "Bearer e2b_env"}, {"e2b_file\n", "e2b_env", "e2b_arg", "Bearer e2b_arg"},
		} {
			t.Setenv("BERM_TOKEN", tt.env)
			if tt.file != "" {
				os.WriteFile(filepath.Join(dir, "token"), []byte(tt.file), 0o600)
			}
			c, err := Discover(dir, "", tt.arg)
			if err == nil {
				err = c.Healthy(t.Context())
				c.Close()
			}
			if err != nil {
				t.Errorf("%+v: %v", tt, err)
			} else if h := <-got; h != tt.want {
				t.Errorf("%+v: %q", tt, h)
			}
		}
		os.WriteFile(filepath.Join(dir, "token"), []byte("two words"), 0o600)
		t.Setenv("BERM_TOKEN", "")
		if _, err := Discover(dir, "", ""); err == nil {
			t.Error("a token file that holds none was taken")
		}
	}
	t.Setenv("BERM_URL", "nonsense")
	if _, err := Discover(t.TempDir(), "", ""); err == nil {
		t.Error("BERM_URL that is none was taken")
	}
	if _, err := Discover(t.TempDir(), "http://127.0.0.1:1", ""); err != nil {
		t.Errorf("--url before BERM_URL: %v", err)
	}
}
