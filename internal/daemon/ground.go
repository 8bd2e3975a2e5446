package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
)

// A ground is what a daemon stands on: everything that takes the rights it was
// started with. It is made before those are given up.
type ground struct {
	state   string
	dir     *os.File // state
	lock    *os.File // held while this daemon lives
	own     *os.File // state/daemon, the daemon's own
	runtime string   // digest of the program that sandboxes run
	agent   string   // image
	host    image.Image
	keeper  *keeper.Client
	started bool // the keeper is one that a daemon started, not a unit of its own
	uid     int  // to become; 0: stay
	lease   *jail.Lease
	token   *os.File // state/token
	urlFile *os.File // state/url
	presets *presets
	shelf   *librarian
	ca      string // the host's certificates
}

// claim makes this process the one daemon of its state directory.
func claim(stateDir string) (_ *ground, err error) {
	g := &ground{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.state, err = StateDir(stateDir); err != nil {
		return nil, err
	}
	jail.RaiseFiles()
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	if g.dir, err = os.Open(g.state); err != nil {
		return nil, unusable(g.state, err)
	}
	return g, g.takeLock()
}

// lay makes the rest of the ground. What an earlier daemon left is taken over.
func (g *ground) lay(ctx context.Context, o ServeOptions) error {
	slow := newSlow(o.Stderr)
	defer slow.end()
	o.Image.Progress = slow.image
	runtimeFile, err := unpack(g.state, o.Sandbox)
	if err != nil {
		return unusable(g.state, err)
	}
	g.runtime = filepath.Base(filepath.Dir(runtimeFile))
	if err := g.findKeeper(ctx, runtimeFile); err != nil {
		return err
	}
	if err := g.images(ctx, o); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if g.lease, err = jail.LeaseUID(); err != nil {
			return err
		}
		g.uid = g.lease.UID
	}
	if err := g.handOver(); err != nil {
		return unusable(g.state, err)
	}
	if g.token, err = g.ownFile("token"); err != nil {
		return unusable(g.state, err)
	}
	if g.urlFile, err = g.ownFile("url"); err != nil {
		return unusable(g.state, err)
	}
	return nil
}

func (g *ground) close() {
	for _, f := range []*os.File{g.token, g.urlFile, g.own, g.lock, g.dir} {
		if f != nil {
			f.Close()
		}
	}
	g.presets.close()
	g.shelf.close()
	if g.keeper != nil {
		g.keeper.Close()
	}
	g.lease.Release()
}

// unlist takes away what leads clients here, as far as our rights go: an address
// that nobody serves any more. A socket that stays refuses, and that says the same.
func (g *ground) unlist() {
	rewrite(g.urlFile, "")
	for _, name := range []string{"url", socketName} {
		os.Remove(below(g.dir, name))
	}
}

// takeLock makes this the one daemon of its state directory.
func (g *ground) takeLock() (err error) {
	if g.lock, err = g.ownFile("daemon.lock"); err != nil {
		return unusable(g.state, err)
	}
	// One that was just killed may need a moment to be gone.
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(g.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return &api.Error{Code: api.CodeHostFailure, Message: "a daemon is already running for " + g.state,
				Hint: "berm ls; or berm serve --state DIR, for another one beside it"}
		}
	}
}

// ownFile opens a file of ours in the state directory, made if it is missing,
// without following a link.
func (g *ground) ownFile(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(g.state, name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

func (g *ground) images(ctx context.Context, o ServeOptions) (err error) {
	store := image.Open(filepath.Join(g.state, "templates"))
	go store.Sweep()
	if g.agent, err = agentImage(ctx, g.state, store, o.Agent); err != nil {
		return unusable(g.state, err)
	}
	o.Image.Rustup = rustups()
	if g.host, err = store.Resolve(ctx, image.Host, o.Image); err != nil {
		return err
	}
	if g.host.Built {
		dropOld(store, g.host, shelf(store, nil).Uses)
	}
	return nil
}

const keeperSocket = "keeper.sock"

// findKeeper joins the keeper of this state directory, or starts one that
// outlives this process.
func (g *ground) findKeeper(ctx context.Context, runtimeFile string) error {
	if g.joinKeeper(ctx) == nil {
		return nil
	}
	l, err := listenUnix(g.dir, "unixpacket", keeperSocket)
	if err != nil {
		return unusable(g.state, err)
	}
	f, err := l.File()
	l.Close()
	if err != nil {
		return err
	}
	defer f.Close()
	attr, mode := &syscall.SysProcAttr{Setsid: true}, "root"
	if os.Geteuid() != 0 {
		mode = "rootless"
		attr.Cloneflags = unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"berm", "keeper", "serve", g.state, runtimeFile, mode, "linger"}
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", attr
	cmd.ExtraFiles = jail.RoomFiles([]*os.File{f}, f)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return noNamespace(err)
	}
	died := make(chan error, 1)
	go func() { died <- cmd.Wait() }()
	for {
		err := g.joinKeeper(ctx)
		if err == nil {
			return nil
		}
		select {
		case werr := <-died:
			return &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("the keeper did not start: %v", werr), Hint: "berm doctor"}
		case <-ctx.Done():
			return fmt.Errorf("join the keeper: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (g *ground) joinKeeper(ctx context.Context) error {
	c, err := dialUnix(ctx, g.dir, "unixpacket", keeperSocket)
	if err != nil {
		return err
	}
	k := keeper.NewClient(c)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	h, err := k.HelloAs(ctx, g.runtime)
	if err != nil {
		k.Close()
		return err
	}
	g.keeper, g.started = k, h.Mode != "unit"
	return nil
}

// handOver makes state/daemon and everything in it the daemon's own. What is in
// it was written by a process with fewer rights than this one, so no link is
// followed and nothing with a second name is touched.
func (g *ground) handOver() error {
	root, err := os.OpenRoot(g.state)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir("daemon", 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	own, err := root.OpenRoot("daemon")
	if err != nil {
		return err
	}
	defer own.Close()
	if g.own, err = own.Open("."); err != nil || g.uid == 0 {
		return err
	}
	return fs.WalkDir(own.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := own.Lstat(name)
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		switch {
		case fi.Mode()&fs.ModeType&^fs.ModeDir != 0:
			return fmt.Errorf("daemon/%s is neither a file nor a directory", name)
		case !fi.IsDir() && st.Nlink != 1:
			return fmt.Errorf("daemon/%s has a second name", name)
		case int(st.Uid) == g.uid && int(st.Gid) == g.uid:
			return nil
		}
		return own.Lchown(name, g.uid, g.uid)
	})
}
