package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
)

// certificate is one for these names, or addresses, that nobody vouches for.
func certificate(t *testing.T, names ...string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}}
}

func TestAddresses(t *testing.T) {
	named, wild, local := certificate(t, "berm.example.org"), certificate(t, "*.example.org"), certificate(t, "127.0.0.1")
	for _, tt := range []struct {
		name, listen string
		cert         *tls.Config
		hosts        []string
		want         string // "network url", or a part of the refusal
	}{
		{"plain", "127.0.0.1:0", nil, nil, "tcp4 http://127.0.0.1"},
		{"plain, with a name for a proxy in front", "127.0.0.1:0", nil, []string{"berm.example.org"}, "tcp4 http://127.0.0.1"},
		{"localhost", "localhost:0", nil, nil, "tcp http://localhost"},
		{"IPv6", "[::1]:0", nil, nil, "tcp6 http://[::1]"},
		{"everywhere without TLS", "0.0.0.0:0", nil, nil, "not a loopback address"},
		{"everywhere, named by a flag", "0.0.0.0:0", named, []string{"b.internal:443"}, "tcp4 https://b.internal"},
		{"everywhere, named by the certificate", "0.0.0.0:0", named, nil, "tcp4 https://berm.example.org"},
		{"everywhere, no name", "0.0.0.0:0", wild, nil, "tcp4 https://0.0.0.0"},
		{"everywhere, IPv6", "[::]:0", named, nil, "tcp6 https://berm.example.org"},
		{"the certificate's own address", "127.0.0.1:0", local, []string{"berm.example.org"}, "tcp4 https://127.0.0.1"},
		{"no port", "127.0.0.1", nil, nil, "not HOST:PORT"},
		{"port out of range", "127.0.0.1:70000", nil, nil, "not HOST:PORT"},
		{"no host", ":7070", nil, nil, "not HOST:PORT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			as, err := addresses([]string{tt.listen}, tt.cert, tt.hosts)
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("%v, want %q", err, tt.want)
				}
				return
			}
			d, err := as[0].open(tt.cert)
			if err != nil {
				t.Skip("no such address on this host:", err)
			}
			defer d.Close()
			_, port, _ := net.SplitHostPort(d.Addr().String())
			if got := as[0].network + " " + strings.TrimSuffix(d.url, ":"+port); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if as[0].network == "tcp4" && strings.Contains(d.Addr().String(), "[") {
				t.Errorf("listens on %s", d.Addr())
			}
			host := strings.Trim(tt.want[strings.Index(tt.want, "://")+3:], "[]")
			if host != "0.0.0.0" && !slices.Contains(names([]door{d}, nil), host) {
				t.Errorf("a request for %s would be refused", host)
			}
		})
	}
	if as, err := addresses([]string{"none"}, nil, nil); err != nil || len(as) != 0 {
		t.Errorf("none: %v, %v", as, err)
	}
	if _, err := addresses([]string{"none", DefaultListen}, nil, nil); err == nil {
		t.Error("none beside another was taken")
	}
}
