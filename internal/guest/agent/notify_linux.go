package agent

import (
	"bytes"
	"context"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// Bounds of one watch: directories, and entries looked at when one appears.
const (
	maxWatched = 1024
	maxLooked  = 10000
)

const watched = syscall.IN_CREATE | syscall.IN_MODIFY | syscall.IN_DELETE | syscall.IN_ATTRIB |
	syscall.IN_MOVED_FROM | syscall.IN_MOVED_TO | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF |
	syscall.IN_ONLYDIR | syscall.IN_EXCL_UNLINK

// A notifier watches a tree.
type notifier struct {
	fs   Files
	fd   int
	deep bool
	dirs map[int32]string // path by watch descriptor, as the host knows it
	root int32
	out  *entryWriter
	last guest.FileEvent
	gone bool   // the root is
	part uint32 // the cookie of a file that was written under another name
}

// watch sends what changes below a directory until it is gone or the call is.
// If the host is slow the kernel's queue runs over, and the host is told.
func (fs Files) watch(c *call, r guest.FileRequest) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "changes")
	defer f.Close()
	n := &notifier{fs: fs, fd: fd, deep: r.Recursive, dirs: make(map[int32]string), out: &entryWriter{c: c}}
	defer n.out.close()
	if n.root, err = n.add(path.Clean(r.Path), 0); err != nil {
		return err
	}
	if n.deep {
		if err := n.enter(path.Clean(r.Path), false); err != nil {
			return err
		}
	}
	if err := c.begun(); err != nil {
		return err
	}
	defer context.AfterFunc(c.ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	for buf := make([]byte, 16<<10); !n.gone; {
		if err := n.out.flush(); err != nil {
			return err
		}
		k, err := f.Read(buf)
		if err != nil {
			if c.ctx.Err() != nil {
				err = c.ctx.Err()
			}
			return err
		}
		if err := n.take(buf[:k]); err != nil {
			return err
		}
	}
	return n.out.flush()
}

// add watches one directory.
func (n *notifier) add(p string, flags uint32) (int32, error) {
	full, err := n.fs.abs(p)
	if err != nil {
		return 0, err
	}
	wd, err := syscall.InotifyAddWatch(n.fd, full, watched|flags)
	if err != nil {
		return 0, err
	}
	n.dirs[int32(wd)] = p
	return int32(wd), nil
}

// enter watches what is below dir, which is watched already; with tell what is
// there counts as created, since nobody saw it come.
func (n *notifier) enter(dir string, tell bool) error {
	todo := []string{dir}
	for looked := 0; len(todo) > 0; {
		dir, todo = todo[0], todo[1:]
		full, err := n.fs.abs(dir)
		if err != nil {
			continue
		}
		ents, err := os.ReadDir(full)
		if err != nil {
			continue // gone, or not a directory any more
		}
		for _, e := range ents {
			p := path.Join(dir, e.Name())
			if looked++; looked > maxLooked {
				return n.say(guest.FileEvent{Op: guest.OpLost})
			}
			if tell {
				if err := n.say(guest.FileEvent{Path: p, Op: guest.OpCreate}); err != nil {
					return err
				}
			}
			if !e.IsDir() {
				continue
			}
			if len(n.dirs) >= maxWatched {
				return n.say(guest.FileEvent{Op: guest.OpLost})
			}
			if _, err := n.add(p, syscall.IN_DONT_FOLLOW); err == nil {
				todo = append(todo, p)
			}
		}
	}
	return nil
}

// say queues one event; a repeated write is one.
func (n *notifier) say(e guest.FileEvent) error {
	if e == n.last && e.Op != guest.OpCreate {
		return nil
	}
	n.last = e
	return n.out.add(e.Append(nil))
}

// take reads events as the kernel writes them.
func (n *notifier) take(b []byte) error {
	n.last = guest.FileEvent{} // what is repeated later is news
	for len(b) >= syscall.SizeofInotifyEvent {
		wd, mask := int32(native(b)), native(b[4:])
		size := syscall.SizeofInotifyEvent + int(native(b[12:]))
		if size > len(b) {
			return syscall.EIO
		}
		cookie := native(b[8:])
		name, _, _ := bytes.Cut(b[syscall.SizeofInotifyEvent:size], []byte{0})
		b = b[size:]
		if err := n.event(wd, mask, cookie, string(name)); err != nil {
			return err
		}
	}
	return nil
}

// native is a number of this machine; encoding/binary would bring reflection.
func native(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func (n *notifier) event(wd int32, mask, cookie uint32, name string) error {
	if mask&syscall.IN_Q_OVERFLOW != 0 {
		return n.say(guest.FileEvent{Op: guest.OpLost})
	}
	dir, ok := n.dirs[wd]
	if !ok {
		return nil
	}
	if mask&(syscall.IN_IGNORED|syscall.IN_UNMOUNT) != 0 {
		delete(n.dirs, wd)
	}
	if wd == n.root && mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_UNMOUNT|syscall.IN_IGNORED) != 0 {
		if n.gone {
			return nil
		}
		n.gone = true
		return n.say(guest.FileEvent{Path: dir, Op: guest.OpRemove})
	}
	if name == "" { // of a directory itself: whoever watches its parent hears it too
		return nil
	}
	if isPart(name) { // a file that is being written; it becomes another
		n.part = 0
		if mask&syscall.IN_MOVED_FROM != 0 {
			n.part = cookie
		}
		return nil
	}
	p, op := path.Join(dir, name), ""
	isDir := mask&syscall.IN_ISDIR != 0
	switch {
	case mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
		op = guest.OpCreate
	case mask&syscall.IN_MODIFY != 0:
		op = guest.OpWrite
	case mask&syscall.IN_DELETE != 0:
		op = guest.OpRemove
	case mask&syscall.IN_MOVED_FROM != 0:
		op = guest.OpRename
		if isDir {
			n.forget(p)
		}
	case mask&syscall.IN_ATTRIB != 0:
		op = guest.OpAttrib
	default:
		return nil
	}
	if err := n.say(guest.FileEvent{Path: p, Op: op}); err != nil {
		return err
	}
	if mask&syscall.IN_MOVED_TO != 0 && cookie != 0 && cookie == n.part {
		return n.say(guest.FileEvent{Path: p, Op: guest.OpWrite})
	}
	if op != guest.OpCreate || !isDir || !n.deep {
		return nil
	}
	if len(n.dirs) >= maxWatched {
		return n.say(guest.FileEvent{Op: guest.OpLost})
	}
	if _, err := n.add(p, syscall.IN_DONT_FOLLOW); err != nil {
		return nil // gone again
	}
	return n.enter(p, true)
}

// forget stops watching a tree that was moved away: its names are no longer
// true.
func (n *notifier) forget(p string) {
	for wd, d := range n.dirs {
		if d == p || strings.HasPrefix(d, p+"/") {
			syscall.InotifyRmWatch(n.fd, uint32(wd))
			delete(n.dirs, wd)
		}
	}
}
