package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend/gvisor"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/template"
)

// Options say what to start.
type Options struct {
	StateDir string // "" is DefaultStateDir()
	Template string // as image.Store.Resolve takes it
	Image    image.Options
	Sandbox  Program     // cmd/berm-sandbox
	Only     *api.Limits // one sandbox will be asked for, with these; nil: any
	Agent    Program     // cmd/berm-agent
	NoImage  bool        // build no image of the host
	Making   bool        // with NoImage: there are sandboxes all the same, of templates that are made
	NoSweep  bool        // leave what dead keepers left on the host
	Link     bool        // sandboxes may get a link
	Presets  []string    // of the rules that will be asked for
	// PresetsFile says what presets stand for, before this host's clients do.
	PresetsFile string
	Debug       *os.File // where the two processes complain; nil: nowhere
}

// Local is a worker and a keeper of our own, ours alone.
type Local struct {
	Template string // the name to create sandboxes with

	conns  handoff
	owner  *net.UnixConn
	worker *exec.Cmd
	keeper *exec.Cmd
	lease  *jail.Lease
	lent   func() // ends the worker's loan of the store of templates
}

// DefaultStateDir is where Berm keeps everything: BERM_STATE, else a place by
// the rights of the caller.
func DefaultStateDir() string {
	if d := os.Getenv("BERM_STATE"); d != "" {
		return d
	}
	if os.Geteuid() == 0 {
		return "/var/lib/berm"
	}
	if d := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "berm")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "berm")
}

// StateDir makes the state directory and returns its absolute path.
func StateDir(dir string) (string, error) {
	if dir == "" {
		dir = DefaultStateDir()
	}
	fail := func(why string) error {
		return &api.Error{Code: api.CodeHostFailure, Message: "state directory: " + why,
			Hint: "berm --state DIR ..., with a directory that you can write"}
	}
	if dir == "" {
		return "", fail("there is no default without HOME, and HOME is not set")
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o700)
	}
	if err == nil {
		err = trusted(abs)
	}
	if err != nil {
		return "", fail(err.Error())
	}
	return abs, nil
}

// trusted says whether what is in dir can be believed: programs and records are.
// It has to be ours and closed to others. Whoever owns a directory above could put
// another in its place, but not one of ours; only where all may write above it,
// without the sticky bit, it is refused for that.
func trusted(dir string) error {
	for p := dir; ; p = filepath.Dir(p) {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return &os.PathError{Op: "stat", Path: p, Err: err}
		}
		bad := st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0
		if p == dir {
			bad = int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0
		}
		if bad {
			return fmt.Errorf("%s could be changed by somebody else (owner %d, mode %04o), and what is in it is believed", p, st.Uid, st.Mode&0o7777)
		}
		if p == "/" {
			return nil
		}
	}
}

// RuntimeFile puts the program that sandboxes run in the state directory and
// returns its path: what `berm bench` compares with.
func RuntimeFile(stateDir string, p Program) (string, error) {
	state, err := StateDir(stateDir)
	if err != nil {
		return "", err
	}
	return unpack(state, p)
}

// unusable says what to do about an error that a state directory gave.
func unusable(state string, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{Code: api.CodeHostFailure, Message: err.Error(),
		Hint: "check space and permissions of " + state + ", or berm --state DIR ..."}
}

// Start prepares the state directory and starts the two processes. The caller
// must call Close. Errors are *api.Error or plain host failures.
func Start(ctx context.Context, o Options) (_ *Local, err error) {
	state, err := StateDir(o.StateDir)
	if err != nil {
		return nil, err
	}
	runtimeFile, err := unpack(state, o.Sandbox)
	if err != nil {
		return nil, unusable(state, err)
	}
	l := &Local{}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	o.Image.Rustup = rustups()
	store := image.Open(filepath.Join(state, "templates"))
	kept := shelf(store, func(ctx context.Context, build bool) (image.Image, error) {
		if img, ok := store.Find(image.Host, o.Image); ok || !build {
			return img, found(ok)
		}
		return store.Resolve(ctx, image.Host, o.Image)
	})
	// Both processes come up while this one looks for the images.
	if err := l.spawn(ctx, o, state, runtimeFile, kept); err != nil {
		return nil, err
	}
	if o.NoImage && !o.Making {
		if err := l.up(); err != nil {
			return nil, err
		}
		return l, l.conns.tell(setup{})
	}
	if !o.NoSweep {
		go func() { // beside the start; what it cannot finish, the next one does
			store.Sweep()
			kept.CollectDue(context.WithoutCancel(ctx))
		}()
	}
	wanted := make(chan error, 1)
	var presets map[string]policy.Preset
	go func() { // clients take their time, and so may an image
		var err error
		if o.Making && o.Link {
			presets = somePresets(ctx, o.PresetsFile)
		} else {
			presets, err = findPresets(ctx, o.Presets, o.PresetsFile)
		}
		wanted <- err
	}()
	agent, err := agentImage(ctx, state, store, o.Agent)
	if err != nil {
		return nil, unusable(state, err)
	}
	set := setup{Agent: agent, Images: map[string]image.Root{}}
	if !o.NoImage {
		root, err := l.root(ctx, o, store, kept)
		if err != nil {
			return nil, err
		}
		set.Images[l.Template] = root
	}
	if err := <-wanted; err != nil {
		return nil, err
	}
	if err := l.up(); err != nil {
		return nil, err
	}
	set.Presets = presets
	return l, l.conns.tell(set)
}

// found is the error of what was looked for.
func found(ok bool) error {
	if ok {
		return nil
	}
	return &api.Error{Code: api.CodeTemplateNotFound, Message: "the template host has not been made yet", Hint: "berm run -- true"}
}

// root finds what a run boots: a template by its name, else what a store of
// images takes.
func (l *Local) root(ctx context.Context, o Options, store *image.Store, kept *template.Store) (image.Root, error) {
	if o.Template != "" && o.Template != image.Host && !strings.HasPrefix(o.Template, ".") && !filepath.IsAbs(o.Template) {
		if root, err := kept.Resolve(ctx, o.Template); err == nil {
			l.Template = o.Template
			return root, nil
		}
		if _, err := os.Stat(o.Template); err != nil && slices.Contains(sandbox.Aliases(), o.Template) {
			o.Template = image.Host
		}
	}
	img, err := store.Resolve(ctx, o.Template, o.Image)
	if err != nil {
		return image.Root{}, err
	}
	if img.Built {
		dropOld(store, img, kept.Uses)
	}
	if l.Template = img.Template; img.Template != image.Host {
		l.Template = templateName(img.Template)
	}
	return image.Root{Layers: []string{img.Name}}, nil
}

// templateName is the name of a template that has a path: its last part, with
// an underscore for what the engine takes for no part of a name.
func templateName(path string) string {
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, filepath.Base(path))
	if strings.HasPrefix(name, ".") {
		name = "_" + name[1:]
	}
	return name[:min(len(name), 128)]
}

// dropOld removes images that img replaces: of the same template with the same
// options, from an earlier state of it, and that no template holds. A sandbox that runs on one holds it
// open; ten minutes are for one that is only just being started.
func dropOld(store *image.Store, img image.Image, used func(name string) bool) {
	now, err := store.Manifest(img.Name)
	if err != nil {
		return
	}
	store.GC(func(name string) bool {
		old, err := store.Manifest(name)
		return err != nil || used(name) || name == img.Name || old.Template != now.Template || time.Since(old.Created) < 10*time.Minute ||
			!slices.Equal(old.Include, now.Include) || !slices.Equal(old.Exclude, now.Exclude)
	})
}

// closeOnExec sees to it that what the caller left open goes no further.
func closeOnExec() error {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return fmt.Errorf("close what the caller left open: %w", err)
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// only is the ceiling of a keeper for one sandbox with these limits.
func only(l api.Limits, link bool) keeper.Ceiling {
	l = l.WithDefaults()
	c := keeper.Ceiling{Limits: gvisor.HostLimits(l), Sandboxes: 1, Link: link}
	if l.TimeoutSeconds > 0 {
		c.Life = time.Duration(l.TimeoutSeconds*float64(time.Second)) + sandbox.DeadlineSlack + time.Minute
	}
	return c
}

func (l *Local) spawn(ctx context.Context, o Options, state, runtimeFile string, kept template.Service) error {
	jail.RaiseFiles()
	if err := closeOnExec(); err != nil {
		return err
	}
	var ours, theirs [3]*os.File // caller-keeper, caller-worker, keeper-worker
	defer func() {
		for _, f := range append(ours[:], theirs[:]...) {
			if f != nil {
				f.Close()
			}
		}
	}()
	for i := range ours {
		var err error
		if ours[i], theirs[i], err = jail.Pair(unix.SOCK_SEQPACKET); err != nil {
			return err
		}
	}
	loan, end, err := lend(ctx, kept)
	if err != nil {
		return err
	}
	defer loan.Close()
	l.lent = end
	var ceiling []byte
	if o.Only != nil {
		var err error
		if ceiling, err = json.Marshal(only(*o.Only, o.Link)); err != nil {
			return err
		}
	}
	root := os.Geteuid() == 0 && jail.ManyUIDs()
	mode, sweep := "root", "sweep"
	if o.NoSweep {
		sweep = "look"
	}
	sockets := workerNone
	if o.Link {
		sockets = workerNet
	}
	uid := 0
	keeperAttr := &syscall.SysProcAttr{Setsid: true}
	workerAttr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if root {
		lease, err := jail.LeaseUID()
		if err != nil {
			return err
		}
		l.lease = lease
		uid = lease.UID
		workerAttr.Cloneflags = jail.WorkerNamespaces // it becomes uid itself, once it is in nowhere
	} else {
		mode = "rootless"
		one := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		}
		keeperAttr.Cloneflags = unix.CLONE_NEWUSER
		keeperAttr.UidMappings, keeperAttr.GidMappings = one(os.Geteuid()), one(os.Getegid())
	}
	keeperCmd := command(o, keeperAttr, jail.RoomFiles([]*os.File{theirs[0], theirs[2]}, theirs[2]), "keeper", state, runtimeFile, mode, sweep, string(ceiling))
	workerCmd := command(o, workerAttr, []*os.File{theirs[1], ours[2], loan}, "worker", state, strconv.Itoa(uid), sockets)
	if ca := os.Getenv("SSL_CERT_FILE"); ca != "" { // read before it is anybody's
		workerCmd.Env = []string{"SSL_CERT_FILE=" + ca}
	}

	// The parent-death signal goes with the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := keeperCmd.Start(); err != nil {
		return noNamespace(err)
	}
	l.keeper = keeperCmd
	if err := workerCmd.Start(); err != nil {
		return noNamespace(err)
	}
	l.worker = workerCmd
	if l.owner, err = jail.Conn(ours[0]); err != nil {
		return err
	}
	c, err := jail.Conn(ours[1])
	if err != nil {
		return err
	}
	l.conns = handoff{c}
	return nil
}

func command(o Options, attr *syscall.SysProcAttr, files []*os.File, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{"berm"}, args...)
	cmd.Env = []string{} // nothing of the caller's environment
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = attr
	if o.Debug != nil {
		cmd.Stderr = o.Debug
	}
	return cmd
}

// Dial makes a connection to the worker's HTTP server.
func (l *Local) Dial(ctx context.Context) (net.Conn, error) { return l.conns.dial(ctx) }

// Close ends both processes and every sandbox, and returns when they are gone.
func (l *Local) Close() error {
	if l.conns.conn != nil {
		l.conns.conn.Close()
	}
	if l.owner != nil {
		l.owner.Close()
	}
	var errs []error
	for _, c := range []*exec.Cmd{l.worker, l.keeper} {
		if c == nil {
			continue
		}
		late := time.AfterFunc(10*time.Second, func() { c.Process.Kill() })
		if err := c.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Args[1], err))
		}
		late.Stop()
	}
	if l.lent != nil {
		l.lent()
	}
	l.lease.Release()
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// rustups is where rustup is at home for whoever has this state directory: by
// the list of accounts, not by the environment, so that a run and a daemon of
// one account have the same template.
func rustups() (homes []string) {
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil && filepath.IsAbs(u.HomeDir) {
		homes = append(homes, filepath.Join(u.HomeDir, ".rustup"))
	}
	return append(homes, "/usr/local/rustup")
}
