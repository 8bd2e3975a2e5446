package gateway

import (
	"errors"
	"time"

	"github.com/bermhq/berm/internal/egress/sniff"
)

// Bounds of the first bytes of a connection, and of heads.
const (
	quiet    = time.Second      // nothing for so long: it waits for the server
	headTime = 10 * time.Second // for a head that has begun
	peekRoom = sniff.MaxHead + 4<<10
)

var errFull = errors.New("gateway: no room for more")

// A peeker reads a guest's bytes ahead of what is let through.
type peeker struct {
	conn *guestConn
	buf  []byte
	from int
}

// data is what was read and not yet let through.
func (p *peeker) data() []byte { return p.buf[p.from:] }

// take says that the first n bytes of data are done with.
func (p *peeker) take(n int) {
	if p.from += n; p.from == len(p.buf) {
		p.buf, p.from = p.buf[:0], 0
	}
}

// more waits for more of data.
func (p *peeker) more(late <-chan time.Time) error {
	if p.from > 0 && cap(p.buf)-len(p.buf) < 16<<10 {
		n := copy(p.buf[:cap(p.buf)], p.data())
		p.buf, p.from = p.buf[:n], 0
	}
	if len(p.buf) == cap(p.buf) {
		if cap(p.buf) >= peekRoom {
			return errFull
		}
		grown := make([]byte, len(p.buf), min(max(4<<10, 4*cap(p.buf)), peekRoom))
		copy(grown, p.buf)
		p.buf = grown
	}
	n, err := p.conn.readUntil(p.buf[len(p.buf):cap(p.buf)], late)
	p.buf = p.buf[:len(p.buf)+n]
	return err
}
