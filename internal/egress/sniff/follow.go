package sniff

import (
	"encoding/binary"
	"slices"
)

// A Follower looks at what a client sends behind its hello. A server may ask for
// a second one (HelloRetryRequest), and many take the name from that.
type Follower struct {
	first ClientHello
	head  [5]byte // of the record, as far as it came
	nhead int
	left  int          // bytes missing of the record
	start []byte       // what a record with a handshake message begins with
	again *HelloReader // reads the second hello
	over  bool         // none can come any more
}

// Follow returns what follows the connection of h, from the end of h on.
func (h ClientHello) Follow() *Follower { return &Follower{first: h} }

// Len is how many bytes a complete hello took.
func (r *HelloReader) Len() int { return r.fed }

// isHello is how many bytes of a record tell a hello from the messages of TLS 1.2,
// which may be encrypted and begin with anything, but are never as short as that.
const isHello = 6

// Next says whether the next bytes may go on. They may not if they complete a
// second hello that is not for the same name, or one that cannot be read.
func (f *Follower) Next(p []byte) bool {
	for len(p) > 0 && !f.over {
		if f.again != nil {
			was := f.again.fed
			h, err := f.again.Feed(p)
			if err == ErrMore {
				return true
			}
			if err != nil || h != f.first {
				return false
			}
			p, f.again = p[f.again.fed-was:], nil
			continue
		}
		if f.left == 0 {
			n := copy(f.head[f.nhead:], p)
			f.nhead, p = f.nhead+n, p[n:]
			if f.nhead == len(f.head) {
				f.nhead, f.left, f.start = 0, int(binary.BigEndian.Uint16(f.head[3:])), f.start[:0]
			}
			continue
		}
		if f.head[0] != 22 { // early data, and what says that the cipher changes
			n := min(f.left, len(p))
			f.left, p = f.left-n, p[n:]
			continue
		}
		n := min(f.left, len(p), isHello-len(f.start))
		f.start, f.left, p = append(f.start, p[:n]...), f.left-n, p[n:]
		switch s := f.start; {
		case s[0] != 1, len(s) == isHello && (s[1] > 2 || s[4] != 3):
			f.over = true
		case len(s) == isHello || f.left == 0:
			p = slices.Concat(f.head[:], s, p)
			f.again, f.left = &HelloReader{}, 0
		}
	}
	return true
}
