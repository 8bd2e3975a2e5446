// Package store keeps what must outlive the process, below one directory that
// one process holds at a time: the audit log (audit/000001.log and on, a hash
// chain in sealed segments, see package audit) and the state (state.db, small
// JSON records in buckets).
//
// The log comes first: an event that decides something is on disk before the
// thing is done, and a record in the state follows it. Where the two differ, the
// log is right. What was acknowledged is never lost; a decision that was refused
// because it could not be written may still be found in the log after a crash,
// and nothing ever follows from it.
package store

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
)

// ErrBudget says that a sandbox has written as many events as it may for now:
// it must end with api.EndPolicy.
var ErrBudget = errors.New("the sandbox is over its event budget")

// Options of a store. The zero value is the safe default.
type Options struct {
	SegmentBytes int64         // a segment is sealed at this size; 0: 32 MiB
	SegmentAge   time.Duration // and at this age; 0: a day
	Retention    time.Duration // sealed segments older than this go; 0: 90 days
	MaxBytes     int64         // so do the oldest where all are more than this; 0: 1 GiB
	ReserveBytes int64         // set aside for a full disk; 0: 4 MiB
	Budget       Budget
	Log          *slog.Logger // nil: nowhere
	Name         string       // of the directory in messages; "": as it is given
}

// Budget is what one sandbox may write into the log in a minute. What a client
// causes (exec.*, file.*) counts a tenth of that. TenantBytes bounds all that one
// tenant writes, so that none can push the others' past out of the log.
type Budget struct {
	Events      int   // 0: 10,000
	Bytes       int64 // 0: 4 MiB
	TenantBytes int64 // 0: 32 MiB
}

// Query selects events. The zero value is the first ones of all.
type Query struct {
	After     uint64   // only those with a higher seq
	Limit     int      // 0: 100; at most MaxEvents
	Types     []string // any of these; nil: all
	SandboxID string
	RunID     string // as generated, or the tag run_id
	Session   string
	Tenant    string // "": all
	// Turn, if set, is called before the log is read from disk, and what it
	// returns afterwards: how the caller bounds how many do that at once. Such a
	// question also leaves the processor to others now and then.
	Turn func() (done func(), err error)
}

// MaxEvents bounds one answer of Events.
const MaxEvents = 10_000

// Store is an open store.
type Store struct {
	lock  *os.File
	log   *log
	state *state

	told   bool // that the state cannot be written; of its goroutine
	toldAt time.Time
	marked uint64 // what the state knows of the log
	quit   chan struct{}
	once   sync.Once
	over   chan struct{}
}

// Open opens the store in dir, or makes it. dir may be below /proc/self/fd.
func Open(dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	if o.Name == "" {
		o.Name = dir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	s := &Store{lock: lock}
	if err := s.open(dir, o); err != nil {
		_ = s.Close()
		var damage *DamageError
		if errors.As(err, &damage) {
			damage.Dir = o.Name
			return nil, damage
		}
		return nil, &api.Error{Code: api.CodeHostFailure, Message: "the store cannot be opened: " + err.Error(),
			Hint: "if nothing can repair it, move " + o.Name + " away: a new store begins with a new log and without tokens"}
	}
	return s, nil
}

func (s *Store) open(dir string, o Options) (err error) {
	if s.state, err = openState(filepath.Join(dir, "state.db")); err != nil {
		return err
	}
	m, err := s.known(dir)
	if err != nil {
		return err
	}
	l, err := loadLog(osDisk{}, filepath.Join(dir, "audit"), o, m.head())
	if err != nil {
		return err
	}
	s.log = l
	err = s.begin(m)
	l.start() // in any case: Close waits for it
	if err != nil {
		return err
	}
	s.state.tell = s.degraded
	if m != nil {
		s.marked = m.Seq
	}
	s.quit, s.over = make(chan struct{}), make(chan struct{})
	go s.follow()
	return nil
}

func (o Options) withDefaults() Options {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.SegmentBytes, 32<<20)
	def((*int64)(&o.SegmentAge), int64(24*time.Hour))
	def((*int64)(&o.Retention), int64(90*24*time.Hour))
	def(&o.MaxBytes, 1<<30)
	def(&o.ReserveBytes, 4<<20)
	def(&o.Budget.Bytes, 4<<20)
	def(&o.Budget.TenantBytes, 32<<20)
	if o.Budget.Events <= 0 {
		o.Budget.Events = 10_000
	}
	// Verify holds every segment open, so there are not too many of them.
	o.SegmentBytes = max(o.SegmentBytes, o.MaxBytes/256)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, &api.Error{Code: api.CodeHostFailure, Message: "the store is in use by another process",
			Hint: "one daemon per state directory: end the other, or choose another --state"}
	}
	return f, nil
}

// Close writes what waits and lets go of the directory.
func (s *Store) Close() error {
	var err error
	if s.quit != nil {
		s.once.Do(func() { close(s.quit) })
		<-s.over
	}
	if s.log != nil {
		err = s.log.close()
	}
	if s.quit != nil {
		s.advance()
	}
	if s.state != nil {
		err = errors.Join(err, s.state.close())
	}
	return errors.Join(err, s.lock.Close())
}

// Append puts events on disk, in this order and next to each other, before it
// returns. It fills in ID, Seq and Time. An error means that none of them
// counts: what they decide must not be done. On a full disk only what happened
// already and what takes something away is written, into the reserve: the ends
// of sandboxes and commands, files moved, caps hit, tokens revoked.
func (s *Store) Append(ctx context.Context, events ...api.Event) error {
	return s.log.append(ctx, events)
}

// Note takes an event of something that was decided before; it is on disk
// within 50 ms. Repeated denials are counted together.
func (s *Store) Note(event api.Event) error { return s.log.note(event) }

// Events answers the events of a query in order, and what to pass as After to
// go on from there. It looks at a bounded part of the log: the answer can be
// empty although there is more, so whoever wants all goes on until next is the
// head's seq.
func (s *Store) Events(q Query) (events []api.Event, next uint64, err error) {
	return s.log.events(q)
}

// Wait returns when there is an event after this seq, or ctx ends.
func (s *Store) Wait(ctx context.Context, after uint64) error { return s.log.wait(ctx, after) }

// Head is where the log ends now.
func (s *Store) Head() api.Head {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.head
}

// Verify reads the whole log and says whether it is what was written, up to a
// head that the caller kept (nil: none).
func (s *Store) Verify(ctx context.Context, head *api.Head) (api.Verification, error) {
	return s.log.verify(ctx, head)
}

// Export writes the log as it is, in the form that audit.Verify reads.
func (s *Store) Export(ctx context.Context, w io.Writer) error {
	r, _, done, err := s.log.whole(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = io.Copy(w, r)
	return err
}

// Report says what the log knows of a run, a sandbox or a session of a tenant
// ("": any).
func (s *Store) Report(ctx context.Context, tenant, subject string) (api.Report, error) {
	return s.log.report(ctx, tenant, subject)
}

// Degraded says why nothing new can be recorded now; "" if it can.
func (s *Store) Degraded() string {
	s.log.mu.Lock()
	why := s.log.why
	s.log.mu.Unlock()
	if why == "" {
		why = s.state.trouble()
	}
	return why
}
