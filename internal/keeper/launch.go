package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// launch makes a sandbox, undoing everything if a step fails. The files it
// returns are for the engine: control, agent, upper, and the guest's end of the
// link if there is one.
func (k *Keeper) launch(s *sandbox, q Launch, given []*os.File) (out []*os.File, err error) {
	var scratch []*os.File // closed on the way out in any case
	defer func() {
		closeAll(scratch)
		if err != nil {
			closeAll(out)
			out = nil
			if s.pid == 0 { // else wait does it
				s.undo(k)
				k.drop(s, nil)
				close(s.gone)
			}
		}
	}()

	if len(given) != 1 {
		return nil, errors.New("launch: the specification is missing")
	}
	r := record{ID: q.ID, Keeper: os.Getpid(), Created: time.Now()}
	if k.groups != nil {
		r.Cgroup = k.groups.Plan(groupName(q.ID))
	}
	if s.claim, err = claimRun(k.runs(), r); err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	if k.groups != nil {
		if s.group, err = k.groups.Create(groupName(q.ID), q.Limits); err != nil {
			return nil, err
		}
	}
	if s.group != nil {
		s.gauge = s.group.Gauge()
	}
	s.step("cgroup")
	uid := 0
	if !k.cfg.Rootless {
		if s.lease, err = jail.LeaseUID(); err != nil {
			return nil, err
		}
		uid = s.lease.UID
	}

	exe := k.exe
	if q.Runtime != "" {
		if exe, err = runtimeFile(k.cfg.StateDir, q.Runtime); err != nil {
			return nil, err
		}
		scratch = append(scratch, exe)
	}
	f, err := k.files(q, given[0], uid)
	scratch = append(scratch, f.close...)
	out, s.upper, s.agent = f.engine, f.upper, f.agent
	if f.sync != nil {
		defer f.sync.Close()
	}
	if err != nil {
		return out, err
	}
	if s.wire != nil {
		host, guest, err := jail.Link()
		if err != nil {
			return out, fmt.Errorf("link: %w", err)
		}
		out = append(out, guest)
		if err := s.wire.lay(host, exe); err != nil {
			host.Close()
			return out, fmt.Errorf("link: %w", err)
		}
	}
	if s.group != nil && q.Limits.MemoryBytes > 0 {
		if s.unOOM, err = s.group.WatchOOM(func() { s.end(CauseMemory) }); err != nil {
			s.unOOM = func() {}
			return out, err
		}
	}
	s.step("files")
	proc, err := k.launcher.Start(jail.Child{
		Exe: exe, Args: fill(q.Args, f.index), Files: f.child,
		Env: []string{"RUNSC_START_TIME_NANOS=" + strconv.FormatInt(time.Now().UnixNano(), 10)},
		UID: uid, Cgroup: s.group, NProc: q.NProc,
	})
	if err != nil {
		return out, err
	}
	s.pid = proc.Pid
	s.step("fork")
	closeAll(scratch) // only the child has its ends now: a dead child is an end of file
	scratch = nil
	s.born(proc)
	go s.wait(k)
	if q.DiskBytes > 0 {
		go s.watchDisk(overfull(q.DiskBytes), diskEvery)
	}
	s.setDeadline(q.DeadlineMS)

	err = jail.WaitByte(f.sync, bootTimeout)
	s.step("kernel")
	if err == nil {
		covered := make(chan error, 1)
		go func() { covered <- jail.CoverProc(s.pid) }()
		var control *os.File
		control, err = k.launcher.Connect(q.ID)
		if e := <-covered; err == nil {
			err = e
		}
		if control != nil {
			out = append([]*os.File{control}, out...)
		}
		s.step("cover")
	}
	if err != nil {
		s.end(CauseStopped)
		<-s.gone
		return out, err
	}
	s.mu.Lock()
	s.telling = make(chan struct{})
	s.mu.Unlock()
	if s.wire != nil {
		s.wire.begin(k, s)
	}
	return out, nil
}

// maxImages is the most that one sandbox may have open: the layers of its root,
// and the agent's.
const maxImages = 41

// admit checks what an engine asks for: names are names, limits can be kept.
// From here on the sandbox is known, so that it can be ended while it still
// comes up.
func (k *Keeper) admit(q Launch, by *link) (*sandbox, error) {
	if !idShape.MatchString(q.ID) {
		return nil, fmt.Errorf("launch: %q is not a sandbox id", q.ID)
	}
	if len(q.Images) == 0 || len(q.Images) > maxImages {
		return nil, fmt.Errorf("launch: %d images; 1 to %d can be", len(q.Images), maxImages)
	}
	for _, i := range q.Images {
		if !imageShape.MatchString(i) {
			return nil, fmt.Errorf("launch: %q is not an image name", i)
		}
	}
	if len(q.Args) == 0 || len(q.Args) > 64 || q.Args[0] != "runsc-sandbox" {
		return nil, errors.New("launch: the arguments are not those of a sandbox")
	}
	if q.Runtime != "" && !imageShape.MatchString(q.Runtime) {
		return nil, fmt.Errorf("launch: %q is not the name of a runtime", q.Runtime)
	}
	if len(q.PauseCall)+len(q.ResumeCall) > 1024 {
		return nil, errors.New("launch: calls of more than 1024 bytes")
	}
	if o := k.obstacle(); o != nil {
		return nil, &Refusal{Code: "rung.unavailable", Message: "gvisor: " + o.Why, Hint: o.Fix}
	}
	if err := k.unenforceable(q.Limits); err != nil {
		return nil, err
	}
	if err := k.cfg.Ceiling.admits(q, time.Now()); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing || k.running[q.ID] != nil {
		return nil, fmt.Errorf("launch: %s: already running, or the keeper is ending", q.ID)
	}
	if c := k.cfg.Ceiling; c != nil && !k.mode.lasts() && k.launched >= c.Sandboxes {
		return nil, fmt.Errorf("launch: %d sandboxes were asked for, and no more", c.Sandboxes)
	}
	if most := k.most(); k.mode.lasts() && len(k.running) >= most {
		return nil, fmt.Errorf("launch: %d sandboxes run already, and no more can", most)
	}
	s := &sandbox{id: q.ID, last: q.DeadlineMS, gone: make(chan struct{}), unOOM: func() {},
		lap: time.Now(), started: time.Now(), ask: q, by: by, parts: map[string]float64{}}
	if q.Extend {
		s.last = 0
	}
	if q.Link {
		s.wire = newWire()
	}
	k.running[q.ID] = s
	k.launched++
	return s, nil
}

// admits says whether q is within c. Each field of c that is set must be met by
// a limit: none is more than any.
func (c *Ceiling) admits(q Launch, now time.Time) error {
	if c == nil {
		return nil
	}
	over := func(asked, most float64) bool { return most > 0 && (asked <= 0 || asked > most) }
	l := q.Limits
	switch {
	case over(float64(l.MemoryBytes), float64(c.Limits.MemoryBytes)):
		return fmt.Errorf("launch: memory %d is over the ceiling %d", l.MemoryBytes, c.Limits.MemoryBytes)
	case over(float64(l.Tasks), float64(c.Limits.Tasks)):
		return fmt.Errorf("launch: tasks %d are over the ceiling %d", l.Tasks, c.Limits.Tasks)
	case over(l.CPUs, c.Limits.CPUs):
		return fmt.Errorf("launch: cpus %g are over the ceiling %g", l.CPUs, c.Limits.CPUs)
	case q.Runtime != "":
		return errors.New("launch: another program than the keeper's own")
	case q.Link && !c.Link:
		return errors.New("launch: a link is over the ceiling")
	case c.Life > 0 && q.Extend:
		return errors.New("launch: a deadline that can move is over the ceiling")
	case c.Life > 0 && (q.DeadlineMS <= 0 || time.UnixMilli(q.DeadlineMS).After(now.Add(c.Life))):
		return fmt.Errorf("launch: the deadline is past the ceiling %v", c.Life)
	}
	return nil
}

// launchFiles are the descriptors around one launch.
type launchFiles struct {
	index  map[string]int // placeholder -> descriptor number in the child
	child  []*os.File
	close  []*os.File // ours to close once the child is forked
	engine []*os.File // agent, upper
	upper  *os.File
	agent  *os.File // the host's end once more, to keep; nil under Run
	sync   *os.File
}

func (k *Keeper) files(q Launch, spec *os.File, uid int) (f launchFiles, err error) {
	f.index = map[string]int{}
	give := func(name string, file *os.File) {
		f.index[name] = 3 + len(f.child)
		f.child = append(f.child, file)
	}
	own := func(file *os.File, err error) (*os.File, error) {
		if err == nil {
			f.close = append(f.close, file)
		}
		return file, err
	}
	give("spec", spec)
	for i, name := range q.Images {
		img, err := own(os.Open(filepath.Join(k.cfg.StateDir, "templates", name+".erofs")))
		if err != nil {
			return f, &Refusal{Code: "template.not-found", Message: fmt.Sprintf("image %s: %v", name, err), Hint: "berm template ls"}
		}
		give("image"+strconv.Itoa(i), img)
	}
	control, err := own(k.launcher.Listen(q.ID))
	if err != nil {
		return f, fmt.Errorf("control socket: %w", err)
	}
	give("control", control)
	sr, sw, err := os.Pipe()
	if err != nil {
		return f, err
	}
	f.sync = sr
	own(sw, nil)
	give("sync", sw)
	host, guest, err := jail.Pair(unix.SOCK_STREAM)
	if err != nil {
		return f, err
	}
	own(guest, nil)
	give("agent", guest)
	give("agent2", guest)
	f.engine = append(f.engine, host)
	if k.mode.lasts() {
		if f.agent, err = dup(host); err != nil {
			return f, err
		}
	}
	if uid > 0 {
		if err := guest.Chown(uid, uid); err != nil {
			return f, err
		}
	}
	null, err := own(os.OpenFile(os.DevNull, os.O_RDWR, 0))
	if err != nil {
		return f, err
	}
	give("null", null)
	upper, err := own(jail.Scratch(k.cfg.StateDir))
	if err != nil {
		return f, err
	}
	give("upper", upper)
	// A second descriptor of it, for the figures: fstat only.
	if f.upper, err = dup(upper); err != nil {
		return f, err
	}
	seen, err := readOnly(upper)
	if err != nil {
		return f, err
	}
	f.engine = append(f.engine, seen)
	return f, nil
}

// runtimeFile opens the program of another build of berm. It is believed like
// all of the state directory: by who owns it, and that nobody else may write.
func runtimeFile(state, name string) (*os.File, error) {
	path := filepath.Join(state, "runtimes", name, "sandbox")
	refuse := func(why any) error {
		return &Refusal{Code: "host.failure", Message: fmt.Sprintf("runtime %s: %v", name, why), Hint: "berm doctor"}
	}
	dir, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, refuse(err)
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), "sandbox", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refuse(err)
	}
	f := os.NewFile(uintptr(fd), path)
	for _, x := range []*os.File{dir, f} {
		var st unix.Stat_t
		why := ""
		if err := unix.Fstat(int(x.Fd()), &st); err != nil {
			why = err.Error()
		} else if st.Uid != 0 && int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			why = "somebody else could have changed it"
		} else if x == f && st.Mode&unix.S_IFMT != unix.S_IFREG {
			why = "not a file"
		}
		if why != "" {
			f.Close()
			return nil, refuse(why)
		}
	}
	return f, nil
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// readOnly opens the same file again for reading.
func readOnly(f *os.File) (*os.File, error) {
	return os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

func fill(args []string, index map[string]int) []string {
	var pairs []string
	for name, fd := range index {
		pairs = append(pairs, "{"+name+"}", strconv.Itoa(fd))
	}
	rep := strings.NewReplacer(pairs...)
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = rep.Replace(a)
	}
	return out
}
