package main

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// listener waits inside a sandbox at an address of the host's, says so with a
// dot, and with another when it is called. From then on its standard input and
// output are the connection.
const listener = `
import os, select, socket, sys
kind, at = sys.argv[1:]
if kind in ("unix", "abstract"):
    s = socket.socket(socket.AF_UNIX)
    if kind == "unix":
        os.makedirs(os.path.dirname(at), exist_ok=True)
    s.bind(at if kind == "unix" else "\0" + at)
else:
    host, port = at.rsplit(":", 1)
    host = host.strip("[]")
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    s.bind((host, int(port)))
os.write(1, b".")
if kind == "udp":
    b, who = s.recvfrom(2048)
    os.write(1, b"." + b)
    sys.exit()
s.listen()
c = s.accept()[0]
os.write(1, b".")
while True:
    for f in select.select([0, c], [], [])[0]:
        b = os.read(0, 4096) if f == 0 else c.recv(4096)
        if not b:
            sys.exit()
        c.sendall(b) if f == 0 else os.write(1, b)
`

// relay lets one caller inside reach an address of the host. It comes back when
// the sandbox listens, or does not; the rest goes on until ctx ends. The host is
// called only when somebody inside has called.
func relay(ctx context.Context, c *client.Client, id, kind, inside, network, host string) {
	in, feed := io.Pipe()
	out := &caller{ready: make(chan struct{}), network: network, host: host, answers: feed}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Exec(ctx, id, api.ExecRequest{Args: []string{"python3", "-c", listener, kind, inside}, Stdin: true},
			client.Stdio{Stdin: in, Stdout: out, Stderr: io.Discard})
		in.Close()
		out.close()
	}()
	select {
	case <-out.ready:
	case <-done:
	case <-time.After(5 * time.Second):
	}
}

// A caller calls the host for a caller inside, at the second dot.
type caller struct {
	ready         chan struct{}
	network, host string
	answers       *io.PipeWriter

	mu   sync.Mutex
	dots int
	conn net.Conn
}

func (c *caller) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := p
	for c.dots < 2 && len(rest) > 0 {
		rest = rest[1:]
		if c.dots++; c.dots == 1 {
			close(c.ready)
			continue
		}
		conn, err := net.DialTimeout(c.network, c.host, time.Second)
		if err != nil {
			return 0, err
		}
		c.conn = conn
		go func() {
			io.Copy(c.answers, conn)
			c.answers.Close()
		}()
	}
	if len(rest) > 0 {
		if _, err := c.conn.Write(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *caller) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}
