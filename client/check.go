package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Check says why nothing could be brought out as o says, before there is a
// sandbox: a pattern that is none, a folder that cannot be written to. The
// error is a *Refusal.
func (o Out) Check() error {
	for part := range strings.SplitSeq(o.Pattern, "/") {
		if part == ".." {
			return &Refusal{Rule: "out.path", Reason: "the path inside has a .. in it", Fix: "name it from / on, or below /workspace"}
		}
	}
	if repository(o.Pattern) != "" {
		return refuseRepository()
	}
	if _, err := path.Match(o.Pattern, ""); err != nil {
		return &Refusal{Rule: "out.path", Reason: "is not a glob: something is unfinished in it", Fix: `write \[ for a [ in a name`}
	}
	dir := o.Local
	if fi, err := os.Stat(dir); dir != "" && !strings.HasSuffix(dir, "/") && !isGlob(o.Pattern) && !(err == nil && fi.IsDir()) {
		dir = filepath.Dir(dir) // of a file, as far as can be known
	}
	return usable(dir)
}

// usable says why a folder cannot be written to, or nil. Nothing stays behind:
// a folder that is missing is looked at where it would be made.
func usable(dir string) error {
	at := filepath.Clean(dir)
	for {
		fi, err := os.Stat(at)
		if err == nil && !fi.IsDir() {
			return unwritable(dir, fmt.Errorf("%s is not a folder", at))
		}
		if err == nil {
			break
		}
		if up := filepath.Dir(at); !errors.Is(err, fs.ErrNotExist) || up == at {
			return unwritable(dir, err)
		} else if _, lerr := os.Lstat(at); lerr == nil {
			return unwritable(dir, fmt.Errorf("%s is a symlink to nowhere", at))
		} else {
			at = up
		}
	}
	if unnamed != 0 {
		if f, err := os.OpenFile(at, os.O_WRONLY|unnamed, 0o600); err == nil {
			return f.Close()
		}
	}
	probe := filepath.Join(at, tmpName())
	f, err := os.OpenFile(probe, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unwritable(dir, err)
	}
	f.Close()
	return os.Remove(probe)
}
