package attack

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// canaryWord is in every planted value and, where one is made, in every planted
// name.
const canaryWord = "berm-canary-"

func newCanary() string { return canaryWord + strings.ToLower(rand.Text()) }

// A planting is all that was put on the host for one run of the suite, and how
// to take it away again.
type planting struct {
	word    string // the random part of names
	needles []needle
	kinds   map[string]*bait // by what cases name as their canary
	files   []planted
	dirs    []string // made for the files, deepest last
	vars    []string // variables that were set
	undo    []func() // of what is none of these
	holder  *exec.Cmd
	release io.Closer // its end lets the holder go
	dir     string    // for sockets, for what cases bring out, for what the holder is to take away

	target target
}

// A bait is all that was planted of one kind.
type bait struct {
	at     []string // where it lies: what the programs that go for it are told
	needle []string // names of its needles
	absent string   // why nothing of the kind could be planted; "" if something was
}

// A planted file and what it was like when it was planted.
type planted struct {
	path  string
	value string
	info  fs.FileInfo
}

// A target is what programs are told: places and addresses, never a value.
type target struct {
	TmpFile    string   `json:"tmpfile"`
	VarTmpFile string   `json:"vartmpfile"`
	Home       string   `json:"home"`
	HolderPID  int      `json:"holder_pid"`
	InheritFD  int      `json:"inherit_fd"`
	UnixPath   string   `json:"unix_path"`
	Abstract   string   `json:"abstract"`
	TCP4       int      `json:"tcp4"`
	TCP6       int      `json:"tcp6"`
	UDP4       int      `json:"udp4"`
	At         []string `json:"at"` // where the case's own canaries are
}

// plant puts everything in place, or nothing.
func plant() (_ *planting, err error) {
	p := &planting{word: newCanary(), kinds: map[string]*bait{}}
	defer func() {
		if err != nil {
			p.uproot()
		}
	}()
	if p.dir, err = os.MkdirTemp("", canaryWord); err != nil {
		return nil, err
	}
	p.target.UnixPath = filepath.Join("/tmp", p.word+".sock") // made by setLure
	if err := p.hold(); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		kind, dir string
		at        *string
	}{{"tmp", "/tmp", &p.target.TmpFile}, {"tmp", "/var/tmp", &p.target.VarTmpFile}, {"shm", "/dev/shm", new(string)}} {
		*f.at = filepath.Join(f.dir, p.word)
		err := p.file(f.kind, *f.at, "%s\n", 0o644)
		if f.kind == "shm" && err != nil {
			p.lack(f.kind, err)
		} else if err != nil {
			return nil, err
		}
	}
	for _, put := range []func() error{p.plantHome, p.plantHere, p.plantProcesses} {
		if err := put(); err != nil {
			return nil, err
		}
	}
	p.plantState("")
	p.plantEnvironment()
	p.plantKernel()
	p.needles = append(p.needles, hostFacts()...)
	return p, nil
}

// kind is the bait of one kind.
func (p *planting) kind(name string) *bait {
	if p.kinds[name] == nil {
		p.kinds[name] = &bait{}
	}
	return p.kinds[name]
}

// note notes that value lies at a place. what says so without the value.
func (p *planting) note(kind, at, what, value string) {
	b := p.kind(kind)
	b.absent = ""
	if !slices.Contains(b.at, at) {
		b.at = append(b.at, at)
	}
	b.needle = append(b.needle, what)
	p.needles = append(p.needles, needle{what, value})
}

// lack notes why something of a kind could not be planted.
func (p *planting) lack(kind string, err error) {
	if b := p.kind(kind); len(b.at) == 0 {
		b.absent = err.Error()
	}
}

// aim is what the program of a case is told, and why it has nothing to go for.
func (p *planting) aim(c Case) (t target, unfit string) {
	t = p.target
	if c.Canary == "" {
		return t, ""
	}
	b := p.kinds[c.Canary]
	if b == nil || len(b.at) == 0 {
		unfit = "no such canary can be planted on this host"
		if b != nil && b.absent != "" {
			unfit += ": " + b.absent
		}
		return t, unfit
	}
	t.At = b.at
	return t, ""
}

// file plants one file with a value of its own in the place of its %s.
func (p *planting) file(kind, path, text string, mode fs.FileMode) error {
	v := newCanary()
	return p.put(kind, path, v, fmt.Sprintf(text, v), mode)
}

// put plants a file that holds value. Where there is a file already, it fails.
func (p *planting) put(kind, path, value, text string, mode fs.FileMode) error {
	// The holder is told first: it removes nothing that has another sum.
	p.tell(fmt.Sprintf("%x  %s", sha256.Sum256([]byte(text)), path))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	pl := planted{path: path, value: text}
	_, err = f.WriteString(pl.value)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		pl.info, err = f.Stat()
	}
	p.files = append(p.files, pl)
	p.note(kind, path, "the canary of "+path, value)
	return err
}

// folder makes one for what is planted, if it is not there.
func (p *planting) folder(path string) error {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		p.dirs = append(p.dirs, path)
		p.tell("dir  " + path)
	} else if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// touched says which planted files are no longer as they were planted.
func (p *planting) touched() (out []string) {
	for _, f := range p.files {
		b, err := os.ReadFile(f.path)
		if err != nil {
			out = append(out, f.path+" is gone or unreadable")
			continue
		}
		fi, err := os.Lstat(f.path)
		if err != nil || string(b) != f.value || fi.Mode() != f.info.Mode() ||
			!fi.ModTime().Equal(f.info.ModTime()) || !os.SameFile(fi, f.info) {
			out = append(out, f.path+" was altered")
		}
	}
	return out
}

// uproot takes everything away again. What somebody else has written into a
// planted file since is left to them.
func (p *planting) uproot() {
	for i := len(p.undo) - 1; i >= 0; i-- {
		p.undo[i]()
	}
	for _, name := range p.vars {
		os.Unsetenv(name)
	}
	for _, f := range p.files {
		if b, err := os.ReadFile(f.path); err == nil && string(b) == f.value {
			os.Remove(f.path)
		}
	}
	for i := len(p.dirs) - 1; i >= 0; i-- {
		os.Remove(p.dirs[i])
	}
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
	if p.holder != nil {
		p.release.Close()
		late := time.AfterFunc(5*time.Second, func() { p.holder.Process.Kill() })
		p.holder.Wait()
		late.Stop()
	}
}

// unwritable says that a place is none to plant in, and no reason to stop.
func unwritable(err error) bool {
	for _, e := range []error{fs.ErrPermission, fs.ErrNotExist, syscall.EROFS, syscall.ENOTDIR, syscall.ENOSPC} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
