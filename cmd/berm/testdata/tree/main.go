// Command tree prints what is in a root filesystem, one JSON object a line. It
// is put into images that have nothing else to run.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

type node struct {
	Path   string // as bytes in hex, since names need not be text
	Mode   uint32 // as in st_mode
	UID    uint32
	GID    uint32
	Size   int64  // of regular files
	Hash   string // of their content
	Target string // of symlinks, in hex
	MTime  int64
	Inode  uint64
}

func main() {
	out := json.NewEncoder(os.Stdout)
	err := filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return fs.SkipDir // for a program that is not root; what is missing will be missed
		}
		if err != nil {
			return err
		}
		switch path {
		case "/proc", "/sys", "/dev":
			return filepath.SkipDir
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		n := node{Path: hex.EncodeToString([]byte(path)), Mode: st.Mode, UID: st.Uid, GID: st.Gid, MTime: st.Mtim.Sec, Inode: st.Ino}
		switch st.Mode & syscall.S_IFMT {
		case syscall.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			n.Target = hex.EncodeToString([]byte(to))
		case syscall.S_IFREG:
			f, err := os.Open(path)
			if errors.Is(err, fs.ErrPermission) {
				break
			}
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			if n.Size, err = io.Copy(h, f); err != nil {
				return err
			}
			n.Hash = hex.EncodeToString(h.Sum(nil))
		}
		return out.Encode(n)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
