package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// tlsSite serves an echo over TLS at server4:443.
func tlsSite(t *testing.T, w *world) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	w.listen(at(server4, 443), func(c *net.TCPConn) {
		s := tls.Server(c, conf)
		io.Copy(s, s)
		s.Close()
	})
}

func TestTLS(t *testing.T) {
	w := newWorld(t, nil)
	tlsSite(t, w)
	for _, tt := range []struct{ name, sni, want string }{
		{"allowed", serverName, ""},
		{"capitals", "ALLOWED.test", ""},
		{"other name", "other.test", "access denied"},
		{"no name", "", "access denied"},
		{"address", "198.51.100.1", "access denied"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := w.mustDial(at(server4, 443))
			defer raw.Close()
			c := tls.Client(raw, &tls.Config{ServerName: tt.sni, InsecureSkipVerify: true})
			err := c.Handshake()
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, c, "secret")
			got := make([]byte, 6)
			if _, err := io.ReadFull(c, got); err != nil || string(got) != "secret" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestTLSHidden: a hello with another one inside says nothing that counts.
func TestTLSHidden(t *testing.T) {
	w := newWorld(t, nil)
	tlsSite(t, w)
	raw := w.mustDial(at(server4, 443))
	defer raw.Close()
	hello := append([]byte{22, 3, 1, 0, 55, 1, 0, 0, 51, 3, 3}, make([]byte, 32)...)
	hello = append(hello, 0, 0, 2, 0x13, 1, 1, 0, 0, 8, 0xfe, 0x0d, 0, 4, 0, 0, 0, 0)
	hello[4], hello[8] = byte(len(hello)-5), byte(len(hello)-9)
	mustWrite(t, raw, string(hello))
	b, err := io.ReadAll(raw)
	if err != nil || string(b) != "\x15\x03\x03\x00\x02\x02\x31" {
		t.Errorf("got %x, %v; want an alert", b, err)
	}
	w.wait(func(a wire.Ask) bool { return a.Op == wire.OpConnect && a.Hidden })
}

// TestRaw: what is neither is denied unless a rule looks at nothing. A client
// that waits for the server is such a one after a second.
func TestRaw(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"silent", ""},
		{"unknown", "SSH-2.0-x\r\n"},
		{"malformed hello", "\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00"},
		{"half a word", "GE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.listen(at(server4, 22), echo)
			c := w.mustDial(at(server4, 22))
			defer c.Close()
			mustWrite(t, c, tt.in)
			if _, err := c.Read(make([]byte, 1)); !reset(err) {
				t.Errorf("got %v, want a reset", err)
			}
			if a := w.wait(func(a wire.Ask) bool { return a.Op == wire.OpConnect }); a.Seen != string(policy.SeenRaw) {
				t.Errorf("asked as %q", a.Seen)
			}
		})
	}
}

func TestRawServerFirst(t *testing.T) {
	w := newWorld(t, func(a wire.Ask) wire.Answer {
		if a.Seen == "raw" {
			return wire.Answer{Allow: true}
		}
		return usual(a)
	})
	w.listen(at(server4, 22), func(c *net.TCPConn) {
		io.WriteString(c, "hello")
		echo(c)
	})
	c := w.mustDial(at(server4, 22))
	defer c.Close()
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
	mustWrite(t, c, "back")
	c.CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "back" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}
