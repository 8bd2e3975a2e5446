package store

import (
	"encoding/json"
	"hash/maphash"

	"github.com/bermhq/berm/api"
)

// sieve remembers, in 64 KiB, which sandboxes, runs and sessions a segment is
// about. It may say yes wrongly, never no: so a question about one of them reads
// the segments that have it, and hardly another.
type sieve [1 << 13]uint64

const sieveHashes = 4

// bit is the place of one of the hashes of a name.
func (s *sieve) bit(h uint64, i int) (word, mask uint64) {
	n := (h + uint64(i)*(h>>32|1)) % (64 * uint64(len(s)))
	return n / 64, 1 << (n % 64)
}

func (s *sieve) add(h uint64) {
	for i := range sieveHashes {
		word, mask := s.bit(h, i)
		s[word] |= mask
	}
}

func (s *sieve) has(h uint64) bool {
	for i := range sieveHashes {
		if word, mask := s.bit(h, i); s[word]&mask == 0 {
			return false
		}
	}
	return true
}

// names are what an event can be asked for by.
type names struct {
	SandboxID string `json:"sandbox_id"`
	RunID     string `json:"run_id"`
	Session   string `json:"session"`
	Tags      struct {
		RunID   string `json:"run_id"`
		Session string `json:"session"`
	} `json:"tags"`
}

func (n *names) into(s *sieve, seed maphash.Seed) {
	for _, name := range [...]string{n.SandboxID, n.RunID, n.Session, n.Tags.RunID, n.Tags.Session} {
		if name != "" {
			s.add(maphash.String(seed, name))
		}
	}
}

func namesOf(e *api.Event) names {
	n := names{SandboxID: e.SandboxID, RunID: e.RunID, Session: e.Session}
	n.Tags.RunID, n.Tags.Session = e.Tags["run_id"], e.Tags["session"]
	return n
}

// mark notes the names of events that are about to be written.
func (g *segments) mark(events []encoded) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.list[len(g.list)-1].names
	if s == nil { // begun by another process; the first who reads it all makes it
		return
	}
	for i := range events {
		n := namesOf(&events[i].event)
		n.into(s, g.seed)
	}
}

// without says whether a segment surely has no event with all these names. With
// mu.
func (g *segments) without(s *segment, asked []string) bool {
	if s.names == nil {
		return false
	}
	for _, name := range asked {
		if !s.names.has(maphash.String(g.seed, name)) {
			return true
		}
	}
	return false
}

// maker makes the sieve of a sealed segment while somebody reads all of it.
type maker struct {
	g    *segments
	n    int
	made *sieve
}

func (g *segments) newMaker(s *segment, asked []string, after uint64) *maker {
	if s.names != nil || !s.sealed || len(asked) == 0 || after >= s.first {
		return nil
	}
	return &maker{g: g, n: s.n, made: new(sieve)}
}

func (m *maker) take(body []byte) {
	if m == nil || m.made == nil {
		return
	}
	var n names
	if json.Unmarshal(body, &n) != nil {
		m.made = nil
		return
	}
	n.into(m.made, m.g.seed)
}

// done keeps what was made: all of the segment was read.
func (m *maker) done() {
	if m == nil || m.made == nil {
		return
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	for i := range m.g.list {
		if m.g.list[i].n == m.n {
			m.g.list[i].names = m.made
		}
	}
}
