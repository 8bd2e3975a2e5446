package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// The state remembers how far the log had come. It is told once a second and at
// the end, after the log is on disk: it may be behind, never ahead. So a log that
// ends before the mark, or has another event there, was changed.

const (
	markPeriod = time.Second
	breakName  = "audit-break" // beside the log's directory
	maxSaid    = 1000
)

// mark is what the state knows of the log.
type mark struct {
	api.Head
	Break *brokenOff `json:"break,omitempty"` // to be the first event of a new log
}

func (m *mark) head() *api.Head {
	if m == nil {
		return nil
	}
	return &m.Head
}

// brokenOff is the log that somebody gave up: the data of api.EventAuditBroken.
type brokenOff struct {
	LastSeq uint64 `json:"last_seq"` // its end, as far as the state knew
	Hash    string `json:"hash"`
	Key     string `json:"key"`
	Time    string `json:"time"`
	Said    string `json:"said"` // what was given as the reason
}

// DamageError says that the audit log is not what was written. Nothing was
// changed then. It unwraps to an *api.Error that says how to go on.
type DamageError struct {
	Dir  string // that holds the log and the state
	File string // below Dir
	Seq  uint64 // from this event on the log proves nothing
	Why  string
	end  uint64 // that the state knows
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the audit log is not what was written: %s, at event %d: %s. Nothing was changed",
		filepath.Join(e.Dir, e.File), e.Seq, e.Why)
}

// Unwrap answers an *api.Error.
func (e *DamageError) Unwrap() error {
	dir := filepath.Join(e.Dir, "audit")
	return &api.Error{Code: api.CodeAuditFailed, Message: e.Error(), Hint: fmt.Sprintf(
		"keep the files: cat %s/anchor %s/*.log > FILE; berm audit verify FILE. If you have the true ones, put them back. To go on without: "+
			"move %s to another place and write %q into %s; the new log begins with that", dir, dir, dir, strconv.FormatUint(e.end, 10)+" REASON", filepath.Join(e.Dir, breakName))}
}

func (s *Store) marks() *Bucket { return s.Bucket("audit") }

// known reads the mark. Where there is no log, and somebody wrote into
// audit-break that they know it, the log that was is given up: that is noted
// first, so it will be said whatever happens then.
func (s *Store) known(dir string) (*mark, error) {
	m := &mark{}
	found, err := s.marks().Get("mark", m)
	if err != nil {
		return nil, err
	}
	if !found {
		m = nil
	}
	if names, err := (osDisk{}).list(filepath.Join(dir, "audit")); err == nil && len(names) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	said, err := contents(osDisk{}, filepath.Join(dir, breakName))
	if err != nil || said == nil {
		return m, err
	}
	if m != nil && m.Break != nil { // taken already
		return m, os.Remove(filepath.Join(dir, breakName))
	}
	number, reason, _ := strings.Cut(strings.TrimSpace(string(said)), " ")
	seq, err := strconv.ParseUint(number, 10, 63)
	if err != nil || m != nil && seq != m.Seq {
		return m, nil // of another break
	}
	reason = strings.ToValidUTF8(reason, "\ufffd")
	gone := brokenOff{LastSeq: seq, Said: reason[:min(len(reason), maxSaid)]}
	if m != nil {
		gone.Hash, gone.Key, gone.Time = m.Hash, m.Key, m.Time
	}
	m = &mark{Break: &gone}
	if err := s.marks().Put("mark", m); err != nil {
		return nil, err
	}
	return m, os.Remove(filepath.Join(dir, breakName))
}

// begin has a new log say what it came after, and the state know of it before
// its first event.
func (s *Store) begin(m *mark) error {
	if m == nil {
		return s.marks().Put("mark", mark{})
	}
	if m.Break != nil && s.log.head.Seq == 0 {
		s.log.say.Warn("the audit log begins anew", "given_up_seq", m.Break.LastSeq, "said", m.Break.Said)
		s.log.own(api.EventAuditBroken, m.Break)
	}
	return nil
}

// follow tells the state how far the log is, until quit.
func (s *Store) follow() {
	defer close(s.over)
	tick := time.NewTicker(markPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.advance()
		case <-s.quit:
			return
		}
	}
}

// advance moves the mark. It also finds out whether a state that could not be
// written can be again.
func (s *Store) advance() {
	h := s.Head()
	if h.Seq == s.marked && s.state.trouble() == "" || h.Seq == 0 {
		return
	}
	if err := s.marks().Put("mark", mark{Head: h}); err != nil {
		s.log.say.Debug("audit log: the state does not know how far it is", "error", err)
		return
	}
	s.marked = h.Seq
}
