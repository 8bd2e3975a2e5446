package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

// below is the path of a socket in a directory that is open: an address of a
// unix socket has room for a hundred characters only.
func below(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// listenUnix makes the socket name in dir, for its owner only, in place of what
// a dead process left. The caller holds the directory's lock.
func listenUnix(dir *os.File, network, name string) (*net.UnixListener, error) {
	path := below(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // its name is in a directory that we may not be able to write by then
	return l, nil
}

func dialUnix(ctx context.Context, dir *os.File, network, name string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, below(dir, name))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// DefaultListen is where a daemon listens beside its socket.
const DefaultListen = "127.0.0.1:7070"

// A door is one listener with what clients may call it.
type door struct {
	net.Listener
	url string // "" for the socket
}

// doors opens the socket of the state directory and every address.
func (g *ground) doors(addrs []string, cert *tls.Config) (ds []door, err error) {
	defer func() {
		if err != nil {
			for _, d := range ds {
				d.Close()
			}
		}
	}()
	u, err := listenUnix(g.dir, "unix", "berm.sock")
	if err != nil {
		return nil, unusable(g.state, err)
	}
	ds = append(ds, door{Listener: u})
	for _, a := range addrs {
		if a == "none" || a == "" {
			continue
		}
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			return ds, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("listen: %.80q is not an address: %v", a, err), Hint: "berm serve --listen " + DefaultListen}
		}
		if ip := net.ParseIP(host); cert == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return ds, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("listen: %s is not a loopback address, and without TLS tokens would cross the network in clear", a),
				Hint: "berm serve --listen " + a + " --tls-cert FILE --tls-key FILE"}
		}
		l, err := net.Listen("tcp", a)
		if err != nil {
			return ds, &api.Error{Code: api.CodeHostFailure, Message: "listen: " + err.Error(), Hint: "berm serve --listen 127.0.0.1:0, for any free port"}
		}
		url := "http://" + l.Addr().String()
		if cert != nil {
			l, url = tls.NewListener(l, cert), "https://"+l.Addr().String()
		}
		ds = append(ds, door{l, url})
	}
	return ds, nil
}

// names are the Host headers under which the doors may be called, beside those
// of the config: a page that found its way here under another name is refused.
func names(ds []door, more []string) []string {
	out := append([]string{"localhost", "127.0.0.1", "::1", "berm"}, more...)
	for _, d := range ds {
		if d.url == "" {
			continue
		}
		host, _, err := net.SplitHostPort(d.Addr().String())
		if ip := net.ParseIP(strings.Trim(host, "[]")); err == nil && ip != nil && !ip.IsUnspecified() {
			out = append(out, host)
		}
	}
	return out
}

// readCert loads a certificate while we still may.
func readCert(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	c, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "TLS: " + err.Error(), Hint: "--tls-cert and --tls-key are PEM files"}
	}
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}
