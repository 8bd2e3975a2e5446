package attack

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack/world"
)

// An External is somebody else's sandbox: a command line with the word {} where
// the program and its arguments go. {dir} anywhere in it is a folder with the
// program's files; the program does not need it, it travels as an argument.
// {memory}, {disk} and {pids} are the caps of the case, {seconds} its deadline,
// {cgroup} the group that all must run in: for those that a daemon starts.
type External []string

// ParseExternal takes a command line apart as a shell would, without expanding
// anything.
func ParseExternal(line string) (External, error) {
	bad := func(why string) error {
		return &api.Error{Code: api.CodeBadRequest, Message: "--against: " + why,
			Hint: "berm attack --against 'bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp {}'"}
	}
	words, err := split1(line)
	if err != nil {
		return nil, bad(err.Error())
	}
	if n := len(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w != "{}" })); n != 1 {
		return nil, bad(fmt.Sprintf("the word {} stands for the program and is there %d times, not once", n))
	}
	if words[0] == "{}" {
		return nil, bad("it starts nothing: before {} there is no command (for no sandbox at all: env {})")
	}
	return words, nil
}

// split1 splits words at blanks, but for quotes and backslashes.
func split1(line string) (out []string, err error) {
	var word strings.Builder
	quote, open := rune(0), false
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case r == '\\' && quote != '\'' && i+1 < len(runes):
			i++
			word.WriteRune(runes[i])
			open = true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if open || word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if open || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out, nil
}

//go:embed travel.py
var travel string

// words is the whole command for a case.
func (x External) words(c Case, group, dir, nonce, facts string) ([]string, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	text := map[string]string{}
	for _, f := range files {
		text[f.Name] = string(f.Data)
	}
	b, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	number := func(n, or int64) string { return strconv.FormatInt(cmp.Or(n, or), 10) }
	caps := strings.NewReplacer("{dir}", dir, "{cgroup}", group,
		"{memory}", number(c.Limits.MemoryBytes, api.DefaultMemoryBytes), "{disk}", number(c.Limits.DiskBytes, api.DefaultDiskBytes),
		"{pids}", number(c.Limits.Pids, api.DefaultPids), "{seconds}", number(int64(math.Ceil(c.Limits.TimeoutSeconds)), 0))
	var out []string
	for _, w := range x {
		if w == "{}" {
			out = append(out, "python3", "-c", travel, string(b), c.Files[0].Name, nonce, facts)
		} else {
			out = append(out, caps.Replace(w))
		}
	}
	return out, nil
}

// oursOnly are walls that stand between Berm and its own parts, or that only its
// API can be asked about.
var oursOnly = map[string]string{
	"guest-user": "it is about the agent inside, which other sandboxes do not have",
	"artifacts":  "it brings artifacts out, for which other sandboxes have no call",
	"archives":   "it sends archives in and out, for which other sandboxes have no call",
	"agent-link": "it takes the place of a part of Berm", "gateway-link": "it takes the place of a part of Berm",
	"filter": "it is about the process that runs a sandbox", "rights": "it is about the process that runs a sandbox",
	"namespaces": "it is about the process that runs a sandbox", "cgroup": "it is about the process that runs a sandbox",
	"token": "it speaks to Berm's API", "tenant": "it speaks to Berm's API", "record": "it reads Berm's records",
	"events": "it is about Berm's records", "cpu": "what it may take of the processors is asked of Berm's API", "snapshot": "it is about Berm's snapshots",
}

// unfit is why a case says nothing of another sandbox.
func (x External) unfit(c Case) string {
	switch {
	case oursOnly[c.Wall] != "":
		return oursOnly[c.Wall]
	case c.Template != "":
		return "its tool lies in a template of Berm's"
	case c.StandIn != "":
		return "it stands in for a part of Berm's own sandbox"
	case c.User != "":
		return "it needs a template that grants root"
	case c.Drive != "":
		return "it attacks from beside, through Berm's API"
	case len(c.Out) > 0:
		return oursOnly["artifacts"]
	}
	return ""
}

// ready makes the cage, and sees that programs run in this sandbox at all.
func (x External) ready(ctx context.Context) (*cage, error) {
	cg, err := newCage(slices.ContainsFunc(x, func(w string) bool { return strings.Contains(w, "{cgroup}") }))
	if err != nil {
		return nil, &api.Error{Code: api.CodeCapUnenforceable, Message: "hostile programs could not be held here: " + err.Error(), Hint: "sudo berm attack --against ..."}
	}
	if err := x.check(ctx, cg); err != nil {
		cg.open()
		return nil, err
	}
	return cg, nil
}

// ample is more memory than a command needs that is only a client.
const ample = 192 << 20

// check starts two programs: one that does nothing but say that it runs, and one
// that uses some memory. What the cage does not see of that does not run in it,
// and nothing hostile may run outside of it.
func (x External) check(ctx context.Context, cg *cage) error {
	for _, use := range []int{0, ample} {
		c := Case{ID: "check", Files: []File{{"main.py", fmt.Appendf(nil, "from prelude import *\nb = b'x' * %d\nended()\n", use)}}, Limits: api.Limits{TimeoutSeconds: 20}}
		var o Observation
		stop := cg.count()
		err := x.run(ctx, cg, &o, c, nil, target{})
		tasks := stop()
		if err != nil {
			return err
		}
		if !o.Ended {
			return &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("the command to attack does not run a program: it said %.400q", o.Said),
				Hint: "it must start python3 in its sandbox: try it with `python3 -c 'print(1)'` in the place of {}"}
		}
		if use == 0 {
			cg.idle = o.Memory
		} else if o.Memory < ample*3/4 || tasks == 0 {
			return &api.Error{Code: api.CodeCapUnenforceable, Message: "the command to attack runs programs outside of the cgroup that would keep the host: a daemon starts them",
				Hint: "tell the daemon where: docker run --cgroup-parent {cgroup} ..."}
		}
		if err := cg.empty(nil); err != nil {
			return err
		}
	}
	return nil
}

// flood is how many times its cap a program may write before it is ended.
const flood = 64

// run does one case in the cage and fills the observation.
func (x External) run(ctx context.Context, cg *cage, o *Observation, c Case, needles []needle, t target) error {
	facts, err := json.Marshal(t)
	if err != nil {
		return err
	}
	dir := filepath.Join(cg.scratch, c.ID)
	if err := lay(c, dir); err != nil {
		return err
	}
	nonce := newCanary()[len(canaryWord):]
	defer func() {
		// Where a program found its own place to write, and it was the host's.
		left, _ := filepath.Glob("/*/berm-attack-" + nonce + "*")
		for _, d := range append(left, dir) {
			os.RemoveAll(d)
		}
	}()
	words, err := x.words(c, cg.name, dir, nonce, string(facts))
	if err != nil {
		return err
	}
	limit := time.Duration(c.Limits.TimeoutSeconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(ctx, limit+within+time.Second)
	defer cancel()
	words = cg.inside(words)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	begin, end := "began "+nonce, "ended "+nonce
	out, errs := newSink(needles, begin, end), newSink(needles)
	most := c.Limits.OutputBytes
	if most == 0 {
		most = 1 << 20
	}
	over := &overflow{end: cancel}
	over.left.Store(most * flood)
	var tail bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &bounded{&tail, maxTimes}, over), io.MultiWriter(errs, over)
	cg.peak()
	began := time.Now()
	err = powerless(cmd.Run)
	o.Elapsed = time.Since(began)
	o.Began, o.Ended = out.found[begin], out.found[end]
	o.Bytes = out.bytes + errs.bytes
	o.Took, o.Slowest = took(tail.Bytes())
	o.Said = string(out.head[:min(len(out.head), 100)]) + " ... " + string(errs.head[:min(len(errs.head), 400)])
	o.Leaks = append(out.leaks("its output"), errs.leaks("its error output")...)
	o.Memory = max(o.Memory, cg.peak())
	o.Halted = ctx.Err() != nil
	if over.left.Load() <= 0 {
		o.Misplaced = append(o.Misplaced, fmt.Sprintf("it wrote %d times the cap on output and went on", flood))
	}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) && !errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		return err
	}
	return nil
}

// An overflow ends a program that writes without end.
type overflow struct {
	left atomic.Int64
	end  func()
}

func (w *overflow) Write(p []byte) (int, error) {
	if w.left.Add(-int64(len(p))) <= 0 {
		w.end()
	}
	return len(p), nil
}

// external runs one case in somebody else's sandbox and gathers the evidence.
func (r *run) external(ctx context.Context, c Case) Observation {
	o := Observation{External: true}
	if c.Waits != "" {
		return o
	}
	if o.Unfit = r.opt.Against.unfit(c); o.Unfit != "" {
		return o
	}
	r.lure.take()
	t, unfit := r.planting.aim(c)
	if o.Unfit = unfit; unfit != "" {
		return o
	}
	known, before := pids(), look("")
	if c.Handed {
		fd, err := syscall.Open(t.TmpFile, syscall.O_RDONLY, 0) // not close-on-exec
		if err != nil {
			return Observation{Failure: "leave a descriptor open: " + err.Error()}
		}
		defer syscall.Close(fd)
		t.InheritFD = fd
	}
	w, tasks := watch(nil, known, nil), r.cage.count()
	err := r.opt.Against.run(ctx, r.cage, &o, c, r.planting.needles, t)
	w.end()
	if err != nil && o.Failure == "" {
		o.Failure = err.Error()
	}
	o.Tasks = max(w.tasks, tasks())
	// Without a program in it, the sandbox holds something too. What is written to
	// files is memory first, and so are files in memory.
	o.Memory = max(0, o.Memory-r.cage.idle)
	o.Disk = max(w.disk, o.Memory)
	o.settled("", before, "")
	if len(o.Left) == 0 {
		for _, pid := range r.cage.procs() {
			o.Left = append(o.Left, fmt.Sprintf("new process: %d (%s)", pid, strings.TrimSpace(readText(procFile(pid, "comm")))))
		}
	}
	if err := r.cage.empty(known); err != nil && o.Failure == "" {
		o.Failure = err.Error()
	}
	o.settledAgain(before)
	o.Touched = r.planting.touched()
	o.Calls = r.lure.take()
	o.MemorySlack, o.DiskSlack = 1<<62, 1<<62
	return o
}

// externalWire is the same on the wire of this process's world.
func (r *run) externalWire(ctx context.Context, w *world.World, c Case) Observation {
	o := Observation{External: true}
	err := r.opt.Against.run(ctx, r.cage, &o, c, nil, target{})
	if err == nil {
		err = r.cage.empty(nil)
	}
	if err != nil {
		o.Failure = err.Error()
	}
	o.Calls = w.End().Hits
	o.MemorySlack, o.DiskSlack = 1<<62, 1<<62
	return o
}

// settledAgain says what is left in words that fit. Processes do not count where
// the sandbox did not end by itself: then only its first one was told to.
func (o *Observation) settledAgain(before view) {
	left := o.Left
	o.Left = nil
	for _, l := range left {
		if strings.HasPrefix(l, "new process: ") && o.Halted {
			continue
		} else if strings.HasPrefix(l, "new process: ") {
			o.Left = append(o.Left, "after its end there is a "+l)
		} else {
			o.Left = append(o.Left, l)
		}
	}
	reapOrphans(before)
}

// lay puts the program's files where {dir} is.
func lay(c Case, dir string) error {
	files, err := c.files()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for _, f := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o755)
		}
	}
	return err
}
