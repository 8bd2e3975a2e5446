package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/bermhq/berm/api"
)

// maxRecord bounds one record of the state.
const maxRecord = 4 << 20

// state is the database. Writers wait in a queue; one of them writes for all
// that wait, with one fsync.
type state struct {
	path string

	mu  sync.RWMutex // held for reading by whoever uses db
	db  *bolt.DB     // nil after a failure, until it is opened again
	why string       // the last write failed

	// tell, if there is one, is called where writing begins to fail, and with ""
	// where it works again.
	tell func(why string)

	gate  sync.RWMutex // held for reading by whoever puts into queue
	shut  bool
	queue chan *change
	over  chan struct{}
}

// change is one write of one caller. do says whether it changed anything.
type change struct {
	do   func(*bolt.Tx) error
	err  error
	done chan error
}

func openState(path string) (*state, error) {
	s := &state{path: path, queue: make(chan *change, 256), over: make(chan struct{})}
	if err := s.open(); err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

func (s *state) open() (err error) {
	defer func() { // of a file that is no database
		if r := recover(); r != nil {
			err = fmt.Errorf("%s is damaged: %v", s.path, r)
		}
	}()
	s.db, err = bolt.Open(s.path, 0o600, &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType, NoStatistics: true})
	if err != nil {
		s.db = nil
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return nil
}

func (s *state) close() error {
	s.gate.Lock()
	if s.shut {
		s.gate.Unlock()
		return nil
	}
	s.shut = true
	s.gate.Unlock()
	close(s.queue)
	<-s.over
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}

// write runs do in a transaction that it may share with others.
func (s *state) write(do func(*bolt.Tx) error) error {
	c := &change{do: do, done: make(chan error, 1)}
	s.gate.RLock()
	if s.shut {
		s.gate.RUnlock()
		return refuse(api.CodeShuttingDown, "the store is closed", "try again when the daemon is back")
	}
	s.queue <- c
	s.gate.RUnlock()
	return <-c.done
}

func (s *state) run() {
	defer close(s.over)
	for c := range s.queue {
		batch := []*change{c}
	more:
		for len(batch) < cap(s.queue) {
			select {
			case c, ok := <-s.queue:
				if !ok {
					break more
				}
				batch = append(batch, c)
			default:
				break more
			}
		}
		s.commit(batch)
	}
}

func (s *state) commit(batch []*change) {
	err := s.usable()
	if err == nil {
		err = s.db.Update(func(tx *bolt.Tx) error {
			for _, c := range batch {
				if c.err = c.do(tx); c.err != nil && !errors.Is(c.err, errNoChange) {
					return c.err
				}
			}
			return nil
		})
		if err != nil {
			s.reset()
		}
	}
	why := ""
	if err != nil {
		why = "the state cannot be written (" + reason(err) + ")"
		err = refuse(api.CodeAuditFailed, why+"; what cannot be recorded is not done", makeRoom)
	}
	s.note(why)
	for _, c := range batch {
		switch {
		case err != nil:
			c.done <- err
		default:
			c.done <- c.err
		}
	}
}

// note keeps whether writing works, and tells where that changed.
func (s *state) note(why string) {
	s.mu.Lock()
	was := s.why
	s.why = why
	s.mu.Unlock()
	if s.tell != nil && (was == "") != (why == "") {
		s.tell(why)
	}
}

func (s *state) trouble() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.why
}

// usable opens the database again after a failure: what a file holds after a
// failed fsync is what is read from it anew, not what memory says.
func (s *state) usable() error {
	if s.db != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open()
}

func (s *state) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.db.Close()
	s.db = nil
}

func (s *state) read(do func(*bolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return refuse(api.CodeAuditFailed, "the state cannot be read now: "+s.why, makeRoom)
	}
	return s.db.View(do)
}

var errNoChange = errors.New("no change")

// Bucket is a named set of JSON records.
type Bucket struct {
	s    *state
	name []byte
}

// Bucket is the bucket of that name, made on the first Put.
func (s *Store) Bucket(name string) *Bucket { return &Bucket{s.state, []byte(name)} }

// Get decodes the record of key into v and says whether there is one.
func (b *Bucket) Get(key string, v any) (bool, error) {
	found := false
	err := b.s.read(func(tx *bolt.Tx) error {
		if in := tx.Bucket(b.name); in != nil {
			if raw := in.Get([]byte(key)); raw != nil {
				found = true
				return json.Unmarshal(raw, v)
			}
		}
		return nil
	})
	return found && err == nil, err
}

// Put keeps v under key; it is on disk when Put returns.
func (b *Bucket) Put(key string, v any) error {
	raw, err := record(key, v)
	if err != nil {
		return err
	}
	return b.s.write(func(tx *bolt.Tx) error { return b.set(tx, key, raw) })
}

// Delete removes the record of key, if there is one.
func (b *Bucket) Delete(key string) error {
	if key == "" {
		return nil
	}
	return b.s.write(func(tx *bolt.Tx) error { return b.set(tx, key, nil) })
}

// Each calls f for every record, in the order of the keys, on one consistent
// state. f must not use the store.
func (b *Bucket) Each(f func(key string, value json.RawMessage) error) error {
	return b.s.read(func(tx *bolt.Tx) error {
		in := tx.Bucket(b.name)
		if in == nil {
			return nil
		}
		return in.ForEach(func(k, v []byte) error { return f(string(k), bytes.Clone(v)) })
	})
}

// CompareAndSet puts next under key if the record is prev now, as JSON. A nil
// prev is no record; a nil next removes it.
func (b *Bucket) CompareAndSet(key string, prev, next any) (bool, error) {
	var was, will []byte
	var err error
	if prev != nil {
		if was, err = record(key, prev); err != nil {
			return false, err
		}
	}
	if next != nil {
		if will, err = record(key, next); err != nil {
			return false, err
		}
	}
	err = b.s.write(func(tx *bolt.Tx) error {
		var is []byte
		if in := tx.Bucket(b.name); in != nil {
			is = in.Get([]byte(key))
		}
		if !bytes.Equal(is, was) {
			return errNoChange
		}
		return b.set(tx, key, will)
	})
	if errors.Is(err, errNoChange) {
		return false, nil
	}
	return err == nil, err
}

func (b *Bucket) set(tx *bolt.Tx, key string, raw []byte) error {
	if raw == nil {
		if in := tx.Bucket(b.name); in != nil {
			return in.Delete([]byte(key))
		}
		return nil
	}
	in, err := tx.CreateBucketIfNotExists(b.name)
	if err != nil {
		return err
	}
	return in.Put([]byte(key), raw)
}

func record(key string, v any) ([]byte, error) {
	if key == "" || len(key) > bolt.MaxKeySize {
		return nil, fmt.Errorf("a key of %d bytes", len(key))
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxRecord {
		return nil, refuse(api.CodeTooLarge, fmt.Sprintf("a record of %d bytes; the most is %d", len(raw), maxRecord), "send less")
	}
	return raw, nil
}
