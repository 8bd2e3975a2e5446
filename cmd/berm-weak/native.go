package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

// nativePart is how this program is told to become a command without a kernel
// of its own.
const nativePart = "native"

// bare is such a command.
type bare struct {
	Args  []string          `json:"args"`
	Env   map[string]string `json:"env"`
	Space []byte            `json:"space"` // a tar archive
}

// nobody is who it runs as: no user of any host.
const nobody = 1999999999

// runNative is the main of one, the first process of its namespaces. It reads
// what it shall be from descriptor 3.
func runNative([]string) error {
	runtime.LockOSThread()
	in := os.NewFile(3, "how")
	var b bare
	if err := json.NewDecoder(in).Decode(&b); err != nil {
		return err
	}
	in.Close()
	if err := emptyRoot(b); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	return b.become()
}

// shown are what of the host's files any program needs to run: nothing of it is a
// secret, and all of it is in the template of this host too.
var shown = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc/ld.so.cache", "etc/passwd", "etc/group", "etc/alternatives", "etc/ssl",
	"etc/machine-id", "sys"} // and these two say which machine it is

// emptyRoot makes a root of memory and goes there.
func emptyRoot(b bare) error {
	const at = "/tmp" // in this mount namespace only
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("root", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64m,mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"etc", "proc", "dev", "tmp", "var/tmp", "dev/shm", "home/agent", "old", "workspace", "root", "run"} {
		if err := os.MkdirAll(filepath.Join(at, dir), 0o755); err != nil {
			return err
		}
	}
	for _, path := range shown {
		if err := show(path, at); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, dev := range []string{"null", "zero", "random", "urandom", "full"} {
		to := filepath.Join(at, "dev", dev)
		if err := os.WriteFile(to, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+dev, to, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", filepath.Join(at, "proc"), "proc", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := unpack(b.Space, filepath.Join(at, api.Workspace)); err != nil {
		return err
	}
	for _, dir := range []string{"tmp", "var/tmp", "dev/shm", "home/agent", "workspace"} {
		if err := os.Chmod(filepath.Join(at, dir), 0o777); err != nil {
			return err
		}
	}
	if err := unix.PivotRoot(at, filepath.Join(at, "old")); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir(api.Workspace)
}

// show puts a path of the host there, to be read.
func show(path, at string) error {
	from, to := "/"+path, filepath.Join(at, path)
	fi, err := os.Lstat(from)
	switch {
	case err != nil:
		return nil // other hosts have it
	case fi.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case fi.IsDir():
		err = os.MkdirAll(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

func unpack(archive []byte, dir string) error {
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || strings.Contains(h.Name, "/") {
			continue
		}
		data, err := io.ReadAll(tr)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, h.Name), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
}

// become gives everything up and is the command from then on.
func (b bare) become() error {
	path := b.Args[0]
	if !strings.Contains(path, "/") {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
			if p, err := exec.LookPath(filepath.Join(dir, path)); err == nil {
				path = p
				break
			}
		}
	}
	for _, l := range []struct {
		what int
		most uint64
	}{{unix.RLIMIT_NPROC, 256}, {unix.RLIMIT_FSIZE, 32 << 20}, {unix.RLIMIT_AS, 2 << 30}, {unix.RLIMIT_CPU, 20}, {unix.RLIMIT_CORE, 0}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return err
		}
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) // one that this kernel does not know is none to drop
	}
	if err := unix.Setgroups(nil); err != nil {
		return err
	}
	if err := unix.Setresgid(nobody, nobody, nobody); err != nil {
		return err
	}
	if err := unix.Setresuid(nobody, nobody, nobody); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := filterAll(); err != nil {
		return err
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent", "USER=agent", "LANG=C.UTF-8"}
	for k, v := range b.Env {
		env = append(env, k+"="+v)
	}
	return unix.Exec(path, b.Args, env)
}
