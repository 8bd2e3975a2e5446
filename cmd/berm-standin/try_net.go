package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// call connects to one of the suite's own servers, and says a word.
func (t *try) call(network, addr string) {
	c, err := net.DialTimeout(network, addr, 2*time.Second)
	t.note(network+" "+addr, err)
	if err == nil {
		c.Write([]byte("standin\n"))
		c.Close()
	}
}

func callTCP(t *try) {
	t.call("tcp4", fmt.Sprintf("127.0.0.1:%d", t.at.TCP4))
	if t.at.TCP6 > 0 {
		t.call("tcp6", fmt.Sprintf("[::1]:%d", t.at.TCP6))
	}
}

func callUDP(t *try) { t.call("udp4", fmt.Sprintf("127.0.0.1:%d", t.at.UDP4)) }

func callAbstract(t *try) { t.call("unix", "@"+t.at.Abstract) }

func callPath(t *try) {
	t.call("unix", t.at.UnixPath)
	t.call("unix", "/proc/1/root"+t.at.UnixPath)
}

// steerNeighbour looks for the sockets on which other sandboxes are steered, and
// has those sandboxes pause.
func steerNeighbour(t *try) {
	t.note("leave the root", unix.Chroot("/proc"))
	t.note("go up", unix.Chdir("../../.."))
	t.note("take another root", unix.Chroot("."))
	es, err := os.ReadDir("/ctl")
	t.note("list /ctl", err)
	for _, e := range es {
		c, err := net.DialTimeout("unix", "/ctl/"+e.Name(), time.Second)
		t.note("connect to "+e.Name(), err)
		if err == nil {
			c.Write([]byte(`{"method":"containerManager.StartRoot","arg":"standin-` + t.nonce + `"}`))
			c.SetReadDeadline(time.Now().Add(time.Second))
			b := make([]byte, 256)
			n, _ := c.Read(b)
			t.say("%q", b[:n])
			c.Close()
		}
	}
}
