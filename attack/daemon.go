package attack

import (
	"context"
	"net"
	"time"

	"github.com/bermhq/berm/client"
)

// A Daemon is one that was started to be attacked, with a state directory of its
// own that it shares with nobody. Whoever starts it sees to it that it ends, and
// that the directory is gone, when this process does, however that ends.
type Daemon struct {
	URL      string // as it said when it was ready
	Token    string // of its first start: an admin's
	StateDir string
	PID      int // of the process that listens
	Close    func() error
}

// Client speaks to it with a token.
func (d *Daemon) Client(token string) *client.Client {
	return client.New(client.Options{URL: d.URL, Token: token})
}

// host is what it listens on, HOST:PORT.
func (d *Daemon) host() string { return d.URL[len("http://"):] }

// dial opens a connection to it.
func (d *Daemon) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", d.host())
}
