package client

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// A draft is a file that gets its name when it is whole. Where the file system
// has files without a name it has none before, so that nothing stays of it if
// this process is killed; elsewhere it has one that starts with ".berm-".
type draft struct {
	dir      *os.Root // the directory it will be in
	name     string
	replaces bool // there is such a file already
	f        *os.File
	tmp      string // the name it has meanwhile, or ""
}

func (d *draft) create() (err error) {
	if unnamed != 0 {
		if d.f, err = d.dir.OpenFile(".", os.O_RDWR|unnamed, 0o600); err == nil {
			return nil
		}
	}
	return d.named()
}

// named makes it with a name from the start.
func (d *draft) named() (err error) {
	tmp := tmpName()
	if d.f, err = d.dir.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		d.tmp = tmp
	}
	return err
}

// drop takes away what did not get its name. It may be called after keep.
func (d *draft) drop() {
	if d.f != nil {
		d.f.Close()
	}
	if d.tmp != "" {
		d.dir.Remove(d.tmp)
	}
}

// keep gives it its name and permissions. occupied is asked when something is
// there that was not there when replaces was set.
func (d *draft) keep(perm os.FileMode, occupied func() error) error {
	if err := d.f.Chmod(perm); err != nil {
		return err
	}
	if d.tmp == "" {
		err := fs.ErrExist
		if !d.replaces {
			err = link(d.f, d.dir, d.name)
		}
		if err == nil {
			return d.f.Close()
		}
		if errors.Is(err, fs.ErrExist) {
			if !d.replaces {
				if err := occupied(); err != nil {
					return err
				}
				d.replaces = true
			}
			tmp := tmpName()
			if err = link(d.f, d.dir, tmp); err == nil {
				d.tmp = tmp
			}
		}
		if d.tmp == "" { // no /proc, or a file system that knows only half of it
			if err := d.copy(perm); err != nil {
				return err
			}
		}
	}
	if err := d.f.Close(); err != nil {
		return err
	}
	if err := d.dir.Rename(d.tmp, d.name); err != nil {
		return err
	}
	d.tmp = ""
	return nil
}

// copy goes on with a named file of the same content.
func (d *draft) copy(perm os.FileMode) error {
	from := d.f
	defer from.Close()
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := d.named(); err != nil {
		return err
	}
	if _, err := io.Copy(d.f, from); err != nil {
		return err
	}
	return d.f.Chmod(perm)
}
