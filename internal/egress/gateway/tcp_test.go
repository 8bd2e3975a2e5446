package gateway

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// echo copies without splice, whose pipes stay open for later ones.
func echo(c *net.TCPConn) {
	io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	c.CloseWrite()
}

func TestRelay(t *testing.T) {
	w := newWorld(t, nil)
	for _, addr := range []netip.Addr{server4, server6} {
		t.Run(addr.String(), func(t *testing.T) {
			to := at(addr, 9000)
			w.listen(to, echo)
			c := w.mustDial(to)
			defer c.Close()
			data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB: more than all buffers
			go func() {
				c.Write(data)
				c.CloseWrite()
			}()
			got := sha256.New()
			n, err := io.Copy(got, c)
			if err != nil || n != int64(len(data)) {
				t.Fatalf("%d bytes came back, %v", n, err)
			}
			if want := sha256.Sum256(data); !bytes.Equal(got.Sum(nil), want[:]) {
				t.Error("other bytes came back")
			}
			w.wait(func(a wire.Ask) bool { return a.Op == wire.OpClose && a.Reason == "" })
		})
	}
}

// TestHalfClose: each side may end first and still hear the other.
func TestHalfClose(t *testing.T) {
	w := newWorld(t, nil)
	to := at(server4, 9000)
	release, heard := make(chan struct{}), make(chan struct{})
	w.listen(to, func(c *net.TCPConn) {
		io.WriteString(c, "hello")
		c.CloseWrite()
		<-release
		b, _ := io.ReadAll(c)
		if string(b) != "late" {
			t.Errorf("the server got %q", b)
		}
		close(heard)
	})
	c := w.mustDial(to)
	if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
		t.Fatalf("got %q, %v", b, err)
	}
	close(release)
	mustWrite(t, c, "late")
	c.Close()
	select {
	case <-heard:
	case <-time.After(patienceInTests):
		t.Fatal("the server heard no end")
	}
}

func TestResetFromServer(t *testing.T) {
	w := newWorld(t, nil)
	to := at(server4, 9000)
	w.listen(to, func(c *net.TCPConn) {
		c.Read(make([]byte, 1)) // so that there is a connection first
		c.SetLinger(0)
	})
	c := w.mustDial(to)
	mustWrite(t, c, "x")
	if _, err := c.Read(make([]byte, 1)); !reset(err) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestResetFromGuest(t *testing.T) {
	w := newWorld(t, nil)
	to := at(server4, 9000)
	heard := make(chan error, 1)
	w.listen(to, func(c *net.TCPConn) {
		io.WriteString(c, "unread")
		_, err := c.Read(make([]byte, 1))
		heard <- err
	})
	c := w.mustDial(to)
	// Closing with something unread is a reset.
	for b := make([]byte, 1); ; {
		if n, err := c.Read(b); n == 1 || err != nil {
			break
		}
	}
	c.Close()
	w.wait(func(a wire.Ask) bool { return a.Op == wire.OpClose && a.Reason == wire.CloseReset })
	select {
	case err := <-heard:
		if err == nil || !strings.Contains(err.Error(), "reset") {
			t.Errorf("the server heard %v, want a reset", err)
		}
	case <-time.After(patienceInTests):
		t.Fatal("the server heard nothing")
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t, nil)
	for _, tt := range []struct {
		name string
		to   netip.AddrPort
	}{
		{"denied", at(netip.MustParseAddr("203.0.113.9"), 443)},
		{"denied, six", at(netip.MustParseAddr("2001:db8:1::9"), 443)},
		{"allowed, nobody listens", at(server4, 9999)},
		{"gateway", at(wire.Gateway4, 80)},
		{"gateway, six", at(wire.Gateway6, 80)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := w.dial(tt.to); !refused(err) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
	w.denied("tcp", policy.DenyGateway)
	if _, err := w.dial(at(netip.MustParseAddr("224.0.0.1"), 80)); err == nil {
		t.Error("a group could be connected to")
	}
}

// TestManyConnections: nothing is left behind by them.
func TestManyConnections(t *testing.T) {
	w := newWorld(t, nil)
	to := at(server4, 9000)
	w.listen(to, echo)
	one := func() {
		c := w.mustDial(to)
		mustWrite(t, c, "x")
		c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "x" || err != nil {
			t.Fatalf("got %q, %v", b, err)
		}
		c.Close()
	}
	for range 20 {
		one()
	}
	settle(t, w, 0)
	fds, routines := openFiles(t), goroutines()
	n := 1000
	if testing.Short() {
		n = 100
	}
	for range n {
		one()
	}
	settle(t, w, 0)
	eventually(t, func() bool { return openFiles(t) <= fds && goroutines() <= routines+5 }, func() string {
		buf := make([]byte, 1<<20)
		return fmt.Sprintf("%d files were open and %d are, %d goroutines ran and %d do:\n%s",
			fds, openFiles(t), routines, goroutines(), buf[:runtime.Stack(buf, true)])
	})
}

// TestTooManyAtOnce: what is beyond the bound is refused and recorded.
func TestTooManyAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	to := at(server4, 9000)
	w.listen(to, echo)
	w.g.conns.Store(maxConns)
	if _, err := w.dial(to); !refused(err) {
		t.Errorf("got %v, want it refused", err)
	}
	w.denied("tcp", policy.DenyBudget)
	w.g.conns.Store(0)
	w.mustDial(to).Close()
}

// TestBrokerGone: its end is the end of the network, never an opening.
func TestBrokerGone(t *testing.T) {
	w := newWorld(t, nil)
	to := at(server4, 9000)
	w.listen(to, echo)
	w.fake.conn.Close()
	if _, err := w.dial(to); !refused(err) {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestLinkGone(t *testing.T) {
	guestEnd, linkEnd := pair(t)
	brokerEnd, askEnd := pair(t)
	newFake(t, brokerEnd, nil)
	link, err := Packets(linkEnd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBroker(askEnd)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGateway(link, b)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	guestEnd.Close()
	if err := g.run(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestThroughput only prints: machines differ.
func TestThroughput(t *testing.T) {
	w := newWorld(t, nil)
	const size = 16 << 20
	send := func(c io.Writer) {
		b := make([]byte, 1<<20)
		for range size / len(b) {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
	down, up, got := at(server4, 9000), at(server4, 9001), make(chan int64, 1)
	w.listen(down, func(c *net.TCPConn) { send(c) })
	w.listen(up, func(c *net.TCPConn) {
		n, _ := io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c})
		got <- n
	})
	start := time.Now()
	n, err := io.Copy(io.Discard, w.mustDial(down))
	if n != size || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	t.Logf("%.0f MB/s from server to guest", float64(n)/1e6/time.Since(start).Seconds())
	start = time.Now()
	c := w.mustDial(up)
	send(c)
	c.CloseWrite()
	if n := <-got; n != size {
		t.Fatalf("%d bytes", n)
	}
	t.Logf("%.0f MB/s from guest to server, %d segments sent again", float64(n)/1e6/time.Since(start).Seconds(), w.guest.Stats().TCP.Retransmits.Value())
}
