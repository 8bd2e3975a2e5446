package keeper

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// A record says who owns which host resources. It is written before the first
// of them is acquired and removed after the last is released; its file is
// locked while its keeper lives, so that a stale one can be told by its lock.
type record struct {
	ID      string       `json:"id"`
	Keeper  int          `json:"keeper"`
	Created time.Time    `json:"created"`
	Cgroup  *jail.Cgroup `json:"cgroup,omitempty"`
}

const ownerFile = "owner.json"

// A claim is a record that we hold.
type claim struct {
	dir  string
	lock *os.File
}

// claimRun writes the record of id below runs and locks it. The directory gets
// its visible name only when it is locked, so no reaper sees it without.
func claimRun(runs string, r record) (*claim, error) {
	tmp := filepath.Join(runs, ".new-"+r.ID)
	// Another keeper takes an empty runs away when it ends: try again then.
	for try := 0; ; try++ {
		err := os.MkdirAll(runs, 0o700)
		if err == nil {
			err = os.Mkdir(tmp, 0o700)
		}
		if err == nil {
			break
		}
		if !os.IsNotExist(err) && !os.IsExist(err) || try == 100 { // MkdirAll says "exists" of what was there in between
			return nil, err
		}
	}
	c, err := writeClaim(tmp, filepath.Join(runs, r.ID), r)
	if err != nil {
		os.RemoveAll(tmp)
	}
	return c, err
}

func writeClaim(tmp, final string, r record) (*claim, error) {
	f, err := os.OpenFile(filepath.Join(tmp, ownerFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = f.Write(b)
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(tmp, final)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &claim{dir: final, lock: f}, nil
}

func (c *claim) release() {
	os.RemoveAll(c.dir)
	c.lock.Close()
	os.Remove(filepath.Dir(c.dir)) // goes when it is empty
}

// Stale is a record whose keeper is gone.
type Stale struct {
	ID     string
	Keeper int
	Age    time.Duration
	Left   []string // what of it is still on the host
}

// Sweep looks for records whose keeper is gone and, unless look is set, ends
// and removes all that they name. It returns what it found.
func Sweep(runs string, look bool) ([]Stale, error) {
	ents, err := os.ReadDir(runs)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, err
	}
	var out []Stale
	for _, e := range ents {
		if s, ok := sweepOne(filepath.Join(runs, e.Name()), look); ok {
			out = append(out, s)
		}
	}
	if !look {
		os.Remove(runs)
	}
	return out, nil
}

func sweepOne(dir string, look bool) (Stale, bool) {
	name := filepath.Base(dir)
	if id, ok := strings.CutPrefix(name, ".new-"); ok {
		// Made and not yet named: nothing was acquired. Old ones are wreckage.
		fi, err := os.Stat(dir)
		if err != nil || time.Since(fi.ModTime()) < 10*time.Second {
			return Stale{}, false
		}
		if !look {
			os.RemoveAll(dir)
		}
		return Stale{ID: id, Age: time.Since(fi.ModTime()), Left: []string{dir}}, true
	}
	if !idShape.MatchString(name) {
		return Stale{}, false
	}
	f, err := openRecord(dir)
	if err != nil {
		return Stale{}, false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return Stale{}, false // its keeper lives
	}
	var r record
	if err := json.NewDecoder(io.LimitReader(f, maxMessage)).Decode(&r); err != nil || r.ID != name {
		r = record{ID: name}
	}
	s := Stale{ID: name, Keeper: r.Keeper, Age: time.Since(r.Created), Left: []string{dir}}
	if r.Cgroup != nil && ownGroup(r.Cgroup, name) {
		for _, d := range r.Cgroup.Dirs {
			if _, err := os.Stat(d); err == nil {
				s.Left = append(s.Left, d)
			}
		}
		if !look {
			if err := r.Cgroup.Remove(2 * time.Second); err != nil {
				return s, true // the record stays for the next try
			}
		}
	}
	if !look {
		os.RemoveAll(dir)
	}
	return s, true
}

// openRecord opens a record without following a link or waiting for a pipe.
func openRecord(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a record", f.Name())
	}
	return f, nil
}

// ownGroup says whether all directories of a record are cgroups of the name
// that its sandbox gives them, so that a record that lies ends nobody else's
// processes.
func ownGroup(c *jail.Cgroup, id string) bool {
	for _, d := range c.Dirs {
		if filepath.Base(d) != groupName(id) || !jail.OnCgroup(filepath.Dir(d)) {
			return false
		}
	}
	return len(c.Dirs) > 0
}

func groupName(id string) string { return "berm-" + id }
