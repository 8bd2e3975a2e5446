package store

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// memDisk is a file system that loses in a crash what no fsync saved: contents
// of files, and names in directories. It counts what would change it, and fails
// at a given one of these.
type memDisk struct {
	mu    sync.Mutex
	names map[string]*memFile // as the running system sees it
	safe  map[string]*memFile // as a crash leaves it

	ops    int // so far
	syncs  int
	killAt int // everything fails from this one on; 0: never
	failAt int // only this one fails, with err
	err    error
	room   int64 // -1: endless
	used   int64
	rnd    *rand.Rand
	gate   chan struct{} // fsyncs wait until it is closed, as on a slow disk
}

type memFile struct {
	data []byte
	safe []byte
	late [][2]int // ranges written since the last fsync
}

type memHandle struct {
	d *memDisk
	f *memFile
}

var errKilled = errors.New("killed")

func newMemDisk(seed uint64) *memDisk {
	return &memDisk{names: map[string]*memFile{}, safe: map[string]*memFile{}, room: -1, rnd: rand.New(rand.NewPCG(seed, 1))}
}

// step counts one operation that changes something. With mu.
func (d *memDisk) step() error {
	d.ops++
	if d.killAt > 0 && d.ops >= d.killAt {
		return errKilled
	}
	if d.failAt > 0 && d.ops == d.failAt {
		return d.err
	}
	return nil
}

// crash is the disk as the next process finds it: of each name and each range
// that was not synced, by lot, all, a part or nothing.
func (d *memDisk) crash() *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := newMemDisk(d.rnd.Uint64())
	keep := func(name string, f *memFile) {
		data := append([]byte(nil), f.safe...)
		for _, r := range f.late {
			from, to := r[0], min(r[1], len(f.data))
			if from >= to {
				continue
			}
			if d.rnd.IntN(3) == 0 {
				continue // lost
			}
			if d.rnd.IntN(2) == 0 {
				to = from + d.rnd.IntN(to-from+1) // torn
			}
			if len(data) < to {
				data = append(data, make([]byte, to-len(data))...)
			}
			copy(data[from:to], f.data[from:to])
		}
		n.names[name] = &memFile{data: data, safe: append([]byte(nil), data...)}
		n.safe[name] = n.names[name]
	}
	for name, f := range d.safe {
		if _, still := d.names[name]; !still && d.rnd.IntN(2) == 0 {
			continue // the removal was on disk already
		}
		keep(name, f)
	}
	for name, f := range d.names {
		if d.safe[name] != f && d.rnd.IntN(2) == 0 {
			keep(name, f)
		}
	}
	return n
}

func (d *memDisk) mkdir(string) error { return nil }

func (d *memDisk) open(name string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[name]
	if f == nil {
		return nil, os.ErrNotExist
	}
	return &memHandle{d, f}, nil
}

func (d *memDisk) create(name string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return nil, err
	}
	f := &memFile{}
	if old := d.names[name]; old != nil {
		d.used -= int64(len(old.data))
		f.safe = old.safe
		if d.safe[name] == old {
			d.safe[name] = f
		}
	}
	d.names[name] = f
	return &memHandle{d, f}, nil
}

func (d *memDisk) reserve(name string, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	if d.names[name] != nil {
		return nil
	}
	if d.room >= 0 && d.used+size > d.room {
		return syscall.ENOSPC
	}
	d.used += size
	d.names[name] = &memFile{data: make([]byte, size)}
	return nil
}

func (d *memDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *memDisk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	if d.names[name] == nil {
		return os.ErrNotExist
	}
	d.used -= int64(len(d.names[name].data))
	delete(d.names, name)
	return nil
}

func (d *memDisk) list(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for name := range d.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

func (d *memDisk) syncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	for name := range d.safe {
		if filepath.Dir(name) == dir && d.names[name] == nil {
			delete(d.safe, name)
		}
	}
	for name, f := range d.names {
		if filepath.Dir(name) == dir {
			d.safe[name] = f
		}
	}
	return nil
}

func (d *memDisk) same(f file, name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[name] == f.(*memHandle).f, nil
}

func (h *memHandle) ReadAt(p []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if off >= int64(len(h.f.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *memHandle) WriteAt(p []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	err := h.d.step()
	if grow := off + int64(len(p)) - int64(len(h.f.data)); err == nil && grow > 0 && h.d.room >= 0 && h.d.used+grow > h.d.room {
		err = syscall.ENOSPC
	}
	if err != nil { // a failed write may have written something
		p = p[:h.d.rnd.IntN(len(p)+1)]
	}
	end := int(off) + len(p)
	if end > len(h.f.data) {
		h.d.used += int64(end - len(h.f.data))
		h.f.data = append(h.f.data, make([]byte, end-len(h.f.data))...)
	}
	copy(h.f.data[off:], p)
	h.f.late = append(h.f.late, [2]int{int(off), end})
	return len(p), err
}

// Sync that fails forgets that there was anything to write, as kernels do: the
// next one succeeds and has saved nothing.
func (h *memHandle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.d.syncs++
	if gate := h.d.gate; gate != nil {
		h.d.mu.Unlock()
		<-gate
		h.d.mu.Lock()
	}
	if err := h.d.step(); err != nil {
		if !errors.Is(err, errKilled) {
			h.f.late = nil
		}
		return err
	}
	for _, r := range h.f.late {
		to := min(r[1], len(h.f.data))
		if r[0] >= to {
			continue
		}
		if len(h.f.safe) < to {
			h.f.safe = append(h.f.safe, make([]byte, to-len(h.f.safe))...)
		}
		copy(h.f.safe[r[0]:to], h.f.data[r[0]:to])
	}
	if len(h.f.safe) > len(h.f.data) {
		h.f.safe = h.f.safe[:len(h.f.data)]
	}
	h.f.late = nil
	return nil
}

func (h *memHandle) Truncate(size int64) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.step(); err != nil {
		return err
	}
	if int(size) < len(h.f.data) {
		h.d.used -= int64(len(h.f.data)) - size
		h.f.data = h.f.data[:size:size]
	}
	return nil
}

func (h *memHandle) Size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return int64(len(h.f.data)), nil
}

func (h *memHandle) Close() error { return nil }

func (d *memDisk) has(suffix string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.names {
		if strings.HasSuffix(name, suffix) {
			n++
		}
	}
	return n
}
