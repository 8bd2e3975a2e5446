package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// An address is where to listen, checked before anything is made.
type address struct {
	network    string // tcp, tcp4 or tcp6
	host, port string
	called     string // the host by which clients get there
}

// addresses checks where to listen. hosts are what clients may call us by.
func addresses(list []string, cert *tls.Config, hosts []string) (as []address, err error) {
	for _, s := range list {
		if s == "none" {
			if len(list) > 1 {
				return nil, &api.Error{Code: api.CodeBadRequest, Message: "listen: none stands beside others", Hint: "berm serve --listen none, for the socket only"}
			}
			continue
		}
		host, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = net.LookupPort("tcp", port)
		}
		if err != nil || host == "" {
			return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("listen: %.80q is not HOST:PORT", s), Hint: "berm serve --listen " + DefaultListen}
		}
		a := address{network: "tcp", host: host, port: port, called: host}
		ip := net.ParseIP(host)
		switch {
		case ip == nil: // a name
		case ip.To4() != nil: // else 0.0.0.0 would take in IPv6 as well
			a.network = "tcp4"
		default:
			a.network = "tcp6"
		}
		if cert == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("listen: %s is not a loopback address, and without TLS tokens would cross the network in clear", s),
				Hint: "berm serve --listen " + s + " --tls-cert FILE --tls-key FILE"}
		}
		if cert != nil {
			a.called = called(host, ip, cert.Certificates[0].Leaf, hosts)
		}
		as = append(as, a)
	}
	return as, nil
}

// called is the name that a client uses so that the certificate fits: the
// address asked for if it does, else the first that we are known by.
func called(host string, ip net.IP, leaf *x509.Certificate, hosts []string) string {
	if (ip == nil || !ip.IsUnspecified()) && leaf.VerifyHostname(host) == nil {
		return host
	}
	if len(hosts) > 0 {
		if h, _, err := net.SplitHostPort(hosts[0]); err == nil {
			return h
		}
		return strings.Trim(hosts[0], "[]")
	}
	for _, n := range leaf.DNSNames {
		if !strings.HasPrefix(n, "*") {
			return n
		}
	}
	return host
}

// open listens there.
func (a address) open(cert *tls.Config) (door, error) {
	l, err := net.Listen(a.network, net.JoinHostPort(a.host, a.port))
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // the rest is said already
		}
		return door{}, &api.Error{Code: api.CodeHostFailure, Message: "listen: " + net.JoinHostPort(a.host, a.port) + ": " + err.Error(), Hint: "berm serve --listen 127.0.0.1:0, for any free port"}
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	url := "http://" + net.JoinHostPort(a.called, port)
	if cert != nil {
		l, url = tls.NewListener(l, cert), "https"+strings.TrimPrefix(url, "http")
	}
	return door{l, url}, nil
}

// socket opens the door that only the owner of the state directory has.
func (g *ground) socket() (door, error) {
	l, err := listenUnix(g.dir, "unix", socketName)
	if err != nil {
		return door{}, unusable(g.state, err)
	}
	return door{Listener: l}, nil
}

const socketName = "berm.sock"

// names are the Host headers under which the doors may be called, beside those
// of the config: a page that found its way here under another name is refused.
func names(ds []door, more []string) []string {
	out := append([]string{"localhost", "127.0.0.1", "::1", "berm"}, more...)
	for _, d := range ds {
		if d.url == "" {
			continue
		}
		for _, addr := range []string{d.Addr().String(), d.url[strings.LastIndexByte(d.url, '/')+1:]} {
			host, _, err := net.SplitHostPort(addr)
			if ip := net.ParseIP(host); err == nil && (ip == nil || !ip.IsUnspecified()) {
				out = append(out, host)
			}
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
	if err == nil && c.Leaf == nil {
		c.Leaf, err = x509.ParseCertificate(c.Certificate[0])
	}
	if err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "TLS: " + err.Error(), Hint: "--tls-cert and --tls-key are PEM files"}
	}
	return &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}
