package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// A control is a connection to gVisor's control server. Its protocol is one
// JSON object out and one back; the few argument structs we need are mirrored
// here (and compared with gVisor's own by a test), so that Berm does not link
// gVisor to speak it.
type control struct {
	mu   sync.Mutex // one call at a time on conn
	conn *net.UnixConn
	dec  *json.Decoder
}

const maxControlAnswer = 1 << 20

func newControl(f *os.File) (*control, error) {
	c, err := jail.Conn(f)
	if err != nil {
		return nil, err
	}
	return &control{conn: c, dec: json.NewDecoder(io.LimitReader(c, maxControlAnswer))}, nil
}

func (c *control) close() error { return c.conn.Close() }

// call asks method with arg and waits for the answer. The files are what gVisor
// calls a file payload: their descriptors come with the first byte.
func (c *control) call(method string, arg any, timeout time.Duration, files ...*os.File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := json.Marshal(map[string]any{"method": method, "arg": arg})
	if err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	n := 0
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		if n, _, err = c.conn.WriteMsgUnix(b[:1], unix.UnixRights(fds...), nil); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
	}
	if _, err := c.conn.Write(b[n:]); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	var r struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err := c.dec.Decode(&r); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if !r.Success {
		return fmt.Errorf("%s: %.300q", method, r.Err)
	}
	return nil
}

const (
	methodNetwork = "Network.CreateLinksAndRoutes"
	methodStart   = "containerManager.StartRoot"
	methodPause   = "containerManager.Pause"
	methodResume  = "containerManager.Resume"
)

// Whole calls, for the keeper to make before it stops a sandbox and after.
const (
	callPause  = `{"method":"` + methodPause + `","arg":{}}`
	callResume = `{"method":"` + methodResume + `","arg":{}}`
)

// linksAndRoutes mirrors boot.CreateLinksAndRoutesArgs as far as we fill it. The
// descriptors of its FDBasedLinks go beside it, see control.call.
type linksAndRoutes struct {
	LoopbackLinks    []loopbackLink
	FDBasedLinks     []fdBasedLink `json:",omitempty"`
	Defaultv4Gateway *defaultRoute `json:",omitempty"`
	Defaultv6Gateway *defaultRoute `json:",omitempty"`
}

type loopbackLink struct {
	Name      string
	Addresses []ipWithPrefix
	Routes    []route
	GVisorGRO bool
}

type ipWithPrefix struct {
	Address   net.IP
	PrefixLen int
}

type route struct {
	Destination net.IPNet
	Gateway     net.IP
	MTU         uint32
}

// loopbackOnly is the whole network of a sandbox without a wire.
func loopbackOnly() linksAndRoutes {
	v4, v6 := net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback
	return linksAndRoutes{LoopbackLinks: []loopbackLink{{
		Name:      "lo",
		Addresses: []ipWithPrefix{{v4, 8}, {v6, 128}},
		Routes: []route{
			{Destination: net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}},
			{Destination: net.IPNet{IP: v6, Mask: net.CIDRMask(128, 128)}},
		},
	}}}
}
