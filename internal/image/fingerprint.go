package image

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"syscall"
)

// hostMarks are the paths whose state stands for the state of the host's tools:
// what package managers, and people who install by hand, cannot help touching.
var hostMarks = []string{
	"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/usr/lib/sysimage/rpm/rpmdb.sqlite",
	"/lib/apk/db/installed", "/usr/lib/apk/db/installed", "/var/lib/pacman/local",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/os-release", "/etc/alternatives",
	"/etc/ssl/certs", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf", "/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/usr/local/share/ca-certificates",
	"/bin", "/sbin", "/lib", "/lib64",
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/include", "/usr/local/bin", "/usr/local/sbin",
	"/usr/local/lib", "/usr/local/include", "/usr/local/go/VERSION", "/usr/local/go/bin",
	"/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs",
	"/usr/lib/python3/dist-packages",
	"/usr/lib/ruby", "/usr/lib/gcc",
}

// pythonMarks are asked for each minor version of Python 3 that there is and
// will be for a while: a stat is cheaper than reading the directories above.
var pythonMarks = []string{
	"/usr/lib/python3.%d", "/usr/lib/python3.%d/site-packages",
	"/usr/local/lib/python3.%d/dist-packages", "/usr/local/lib/python3.%d/site-packages",
}

// hostKey is the fingerprint of the host's tools and of the options: a few
// dozen stats. Paths that are included are looked at file by file.
func hostKey(opt Options) (string, error) {
	h := newKey("host", opt)
	fmt.Fprintf(h, "%s\x00", opt.HostRoot)
	for _, mark := range hostMarks {
		hashStat(h, filepath.Join(opt.HostRoot, mark))
	}
	for minor := 6; minor < 24; minor++ {
		for _, mark := range pythonMarks {
			hashStat(h, filepath.Join(opt.HostRoot, fmt.Sprintf(mark, minor)))
		}
	}
	if len(opt.Rustup) > 0 {
		hashRust(h, opt)
	}
	for _, p := range opt.Include {
		hashTree(h, filepath.Join(opt.HostRoot, p), nil)
	}
	return nameOf(h.Sum(nil)), nil
}

// hashRust adds which toolchain is in use, and its state: rustup makes its
// folders anew with each version.
func hashRust(h hash.Hash, opt Options) {
	root, err := os.OpenRoot(opt.HostRoot)
	if err != nil {
		return
	}
	defer root.Close()
	dir := rustToolchain(root, opt.Rustup)
	fmt.Fprintf(h, "%s\x00", dir)
	if dir != "" {
		for _, mark := range []string{"bin", "lib", "lib/rustlib", "bin/cargo", "bin/rustc"} {
			hashStat(h, filepath.Join(opt.HostRoot, dir, mark))
		}
	}
}

// newKey starts a fingerprint with what is true of all templates.
func newKey(kind string, opt Options) hash.Hash {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%d\x00%q\x00%q\x00", kind, formatVersion, opt.MaxBytes, opt.Include, opt.Exclude)
	return h
}

// hashStat adds what lstat says of a path.
func hashStat(h hash.Hash, p string) {
	var st syscall.Stat_t
	if err := syscall.Lstat(p, &st); err != nil {
		fmt.Fprintf(h, "%s\x00-\x00", p)
		return
	}
	hashStatOf(h, p, &st)
}

func hashStatOf(h hash.Hash, p string, st *syscall.Stat_t) {
	var b [80]byte
	for i, v := range []uint64{
		st.Ino, st.Dev, uint64(st.Mode), uint64(st.Size), uint64(st.Uid)<<32 | uint64(st.Gid), uint64(st.Nlink),
		uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec),
	} {
		le.PutUint64(b[8*i:], v)
	}
	h.Write([]byte(p))
	h.Write([]byte{0})
	h.Write(b[:])
}

// hashTree adds everything below a directory, in the order of names, without
// following symlinks or crossing into other filesystems.
func hashTree(h hash.Hash, dir string, skip func(p string) bool) error {
	info, err := os.Lstat(dir)
	if err != nil {
		fmt.Fprintf(h, "%s\x00-\x00", dir)
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	count := 0
	var walk func(p string, st *syscall.Stat_t) error
	walk = func(p string, top *syscall.Stat_t) error {
		hashStatOf(h, p, top)
		if top.Mode&typeMask != typeDir || top.Dev != st.Dev {
			return nil
		}
		list, err := os.ReadDir(p)
		if err != nil {
			return err
		}
		for _, e := range list {
			kid := p + "/" + e.Name()
			if count++; count > maxNodes {
				return errTooMany
			}
			if skip != nil && skip(kid) {
				continue
			}
			var ks syscall.Stat_t
			if err := syscall.Lstat(kid, &ks); err != nil {
				return err
			}
			if err := walk(kid, &ks); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(dir, st)
}
