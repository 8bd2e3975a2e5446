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
}

// Budget is what one sandbox may write into the log in a minute. What a client
// causes (exec.*, file.*) counts a tenth of that.
type Budget struct {
	Events int   // 0: 10,000
	Bytes  int64 // 0: 4 MiB
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
}

// MaxEvents bounds one answer of Events.
const MaxEvents = 10_000

// Store is an open store.
type Store struct{}

// Open opens the store in dir, or makes it. dir may be below /proc/self/fd.
func Open(dir string, o Options) (*Store, error) { return nil, errors.ErrUnsupported }

// Close writes what waits and lets go of the directory.
func (s *Store) Close() error { return nil }

// Append puts events on disk, in this order and next to each other, before it
// returns. It fills in ID, Seq and Time. An error means that none of them
// counts: what they decide must not be done.
func (s *Store) Append(ctx context.Context, events ...api.Event) error { return errors.ErrUnsupported }

// Note takes an event of something that was decided before; it is on disk
// within 50 ms. Repeated denials are counted together.
func (s *Store) Note(event api.Event) error { return errors.ErrUnsupported }

// Events answers the events of a query in order, and what to pass as After to
// go on from there. It looks at a bounded part of the log: the answer can be
// empty although there is more, so whoever wants all goes on until next is the
// head's seq.
func (s *Store) Events(q Query) (events []api.Event, next uint64, err error) {
	return nil, 0, errors.ErrUnsupported
}

// Wait returns when there is an event after this seq, or ctx ends.
func (s *Store) Wait(ctx context.Context, after uint64) error { return errors.ErrUnsupported }

// Head is where the log ends now.
func (s *Store) Head() api.Head { return api.Head{} }

// Verify reads the whole log and says whether it is what was written, up to a
// head that the caller kept (nil: none).
func (s *Store) Verify(ctx context.Context, head *api.Head) (api.Verification, error) {
	return api.Verification{}, errors.ErrUnsupported
}

// Export writes the log as it is, in the form that audit.Verify reads.
func (s *Store) Export(ctx context.Context, w io.Writer) error { return errors.ErrUnsupported }

// Report says what the log knows of a run, a sandbox or a session of a tenant
// ("": any).
func (s *Store) Report(ctx context.Context, tenant, subject string) (api.Report, error) {
	return api.Report{}, errors.ErrUnsupported
}

// Degraded says why Append refuses everything now; "" if it does not.
func (s *Store) Degraded() string { return "" }
