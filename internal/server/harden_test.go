package server_test

import (
	"net"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/server"
)

// Beyond the bound a connection waits until another has ended.
func TestBoundListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := server.Bound(inner, 2)
	accepted := make(chan net.Conn, 10)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	var dialled []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		dialled = append(dialled, c)
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Error("three connections are open")
	case <-time.After(100 * time.Millisecond):
	}
	first.Close()
	first.Close() // once is what counts
	third := <-accepted
	l.Close()
	<-over
	for _, c := range append(dialled, second, third) {
		c.Close()
	}
}
