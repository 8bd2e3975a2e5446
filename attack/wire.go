package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack/world"
)

// insideVar says, to a process that was started for it, on which descriptor it
// shall tell what came of cases in a world of its own. Nothing is gained by
// setting it: a world is only ever built in namespaces that hold nothing.
const insideVar = "BERM_ATTACK_INSIDE"

// A line is what such a process tells.
type line struct {
	Ended  *Result `json:"ended,omitempty"`
	Worked *Benign `json:"worked,omitempty"`
	over   bool    // the process has ended
}

// insider says whether this is such a process.
func insider() (io.WriteCloser, bool) {
	fd, err := strconv.Atoi(os.Getenv(insideVar))
	if err != nil || fd < 3 {
		return nil, false
	}
	os.Unsetenv(insideVar) // nobody below this process is meant
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "results"), true
}

// shards are how many worlds attack at one time: most attempts wait for what
// does not come, and what waits needs no processor.
const shards = 3

// runOnTheWire runs cases in other processes, which have namespaces of their own.
func runOnTheWire(ctx context.Context, opt Options, cases []Case, tell teller) error {
	why := world.Why()
	if why == "" && opt.Again == nil {
		why = "whoever attacks cannot start itself again"
	}
	if why != "" {
		for _, c := range cases {
			tell.ended(Judge(c, Observation{Unfit: why}))
		}
		return nil
	}
	r := &run{opt: opt}
	if opt.Against == nil {
		if err := r.warm(ctx, true); err != nil {
			return err
		}
	}
	before := look(r.stateDir)
	lines := make(chan line)
	n := min(shards, len(cases))
	for i := range n {
		var mine []Case
		for k := i; k < len(cases); k += n {
			mine = append(mine, cases[k])
		}
		go func() {
			attackInside(ctx, opt, mine, lines)
			lines <- line{over: true}
		}()
	}
	got := map[string]Result{}
	next := 0
	for n > 0 {
		l := <-lines
		switch {
		case l.over:
			n--
		case l.Ended != nil:
			got[l.Ended.ID] = *l.Ended
		}
		for ; next < len(cases)-1 && ctx.Err() == nil; next++ { // in order; the last waits for the end
			res, ok := got[cases[next].ID]
			if !ok {
				tell.began(cases[next])
				break
			}
			tell.ended(res)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	last := got[cases[len(cases)-1].ID]
	var o Observation
	o.settled(r.stateDir, before, "")
	switch {
	case len(o.Left) > 0:
		last.Verdict, last.Evidence = Breached, harmless("after all of them: "+strings.Join(o.Left, "; ")+"; "+last.Evidence)
	case len(o.Moved) > 0 && last.Verdict == Contained:
		last.Verdict, last.Evidence = Inconclusive, harmless("after all of them: "+strings.Join(o.Moved, "; ")+", whoever did it; "+last.Evidence)
	}
	tell.ended(last)
	return nil
}

// attackInside runs cases in one process in a world of its own, and tells of
// each, whatever becomes of it.
func attackInside(ctx context.Context, opt Options, cases []Case, lines chan<- line) {
	open, only := map[string]Case{}, []string{}
	for _, c := range cases {
		open[c.ID], only = c, append(only, c.ID)
	}
	rest := func(o Observation) {
		for _, c := range cases {
			if _, is := open[c.ID]; is {
				res := Judge(c, o)
				lines <- line{Ended: &res}
			}
		}
	}
	unfit, failure := inWorld(ctx, opt, only, func(l line) {
		if l.Ended == nil {
			return
		}
		if _, is := open[l.Ended.ID]; is {
			delete(open, l.Ended.ID)
			lines <- l
		}
	})
	rest(Observation{Unfit: unfit, Failure: failure})
}

// inWorld starts this program again, with only those, in a process that builds
// a world around itself, and hands over what it tells. What is not told of by
// then was not run: unfit and failure say why.
func inWorld(ctx context.Context, opt Options, only []string, told func(line)) (unfit, failure string) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err.Error()
	}
	defer r.Close()
	cmd := opt.Again(ctx, only)
	cmd.Env = append(cmd.Environ(), insideVar+"=3")
	cmd.ExtraFiles = []*os.File{w}
	var said bytes.Buffer
	cmd.Stderr = &bounded{&said, 4096}
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 20*time.Second
	cmd.SysProcAttr = world.Attr()
	cmd.SysProcAttr.Setpgid = true // it hears of an interrupt from here, once
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread() // whose death would be taken for ours
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	w.Close()
	if errors.Is(err, syscall.EPERM) {
		return "network namespaces cannot be made here: " + err.Error(), ""
	}
	if err != nil {
		return "", err.Error()
	}
	for dec := json.NewDecoder(io.LimitReader(r, 16<<20)); ; {
		var l line
		if err := dec.Decode(&l); err != nil {
			break
		}
		told(l)
	}
	err = cmd.Wait()
	return "", fmt.Sprintf("its world ended: %v: %.300s", err, bytes.TrimSpace(said.Bytes()))
}

// runInside runs cases and works in a world around this process and tells out.
func runInside(ctx context.Context, opt Options, cases []Case, works []Work, out io.WriteCloser) error {
	defer out.Close()
	w, err := world.Build()
	if err != nil {
		return fmt.Errorf("world: %w", err)
	}
	defer w.Close()
	known := pids()
	r := &run{opt: opt}
	s := &Session{Close: func() error { return nil }}
	if opt.Against != nil {
		if r.cage, err = opt.Against.ready(ctx); err == nil {
			defer r.cage.open()
		}
	} else {
		s, err = opt.Open(ctx, true)
	}
	if err != nil {
		return err
	}
	tell := json.NewEncoder(out)
	for _, c := range cases {
		res := timed(func() Result { return Judge(c, r.observeWire(ctx, w, s, c, known)) })
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		if err = tell.Encode(line{Ended: &res}); err != nil {
			break
		}
	}
	for _, k := range works {
		if ctx.Err() != nil || err != nil {
			break
		}
		b := r.work(ctx, s, k)
		err = tell.Encode(line{Worked: &b})
	}
	return errors.Join(err, s.Close())
}

// observeWire runs one case in a sandbox of its own. All share a session: what
// they must not share is a sandbox, and sessions take longer than attempts.
func (r *run) observeWire(ctx context.Context, w *world.World, s *Session, c Case, known map[int]bool) (o Observation) {
	rules, names, err := policyOf(c)
	if err != nil {
		return Observation{Failure: err.Error()}
	}
	if c.StandIn != "" { // it has a session to itself
		own, unfit, err := r.session(ctx, c)
		if unfit != "" || err != nil {
			return Observation{Unfit: unfit, Failure: fmt.Sprint("session: ", err)}
		}
		defer func() {
			if err := own.Close(); err != nil && o.Failure == "" {
				o.Failure = "close: " + err.Error()
			}
		}()
		s = own
	}
	w.Begin(names)
	if r.opt.Against != nil {
		return r.externalWire(ctx, w, c)
	}
	a := &attempt{c: c, s: s, o: &o, isolation: r.opt.Isolation, known: known, egress: rules}
	if err := a.run(ctx); err != nil && o.Failure == "" {
		o.Failure = err.Error()
	}
	seen := w.End()
	o.Calls = seen.Hits
	o.Cut = cut(c, seen, a.nonce)
	o.CanLook = os.Geteuid() == 0
	return o
}

// cut says what did not arrive of the requests that every program ends with,
// and of what the case is to reach.
func cut(c Case, seen world.Watch, nonce string) (out []string) {
	for _, v := range []string{"4", "6"} {
		if !seen.Good["http"+v+" /ok-"+nonce] {
			out = append(out, "example.test over IPv"+v)
		}
	}
	for _, what := range c.Reach {
		if !seen.Good[strings.Replace(what, ":", " ", 1)] {
			out = append(out, what)
		}
	}
	return out
}

// policyOf is the egress document of a case, and the names in it.
func policyOf(c Case) (doc json.RawMessage, names []string, err error) {
	var rules []api.EgressRule
	for _, a := range append(append([]string{}, world.Rules...), c.Allow...) {
		rules = append(rules, api.EgressRule{Allow: a})
		name, _, _ := cutPort(a)
		names = append(names, name)
	}
	doc, err = json.Marshal(rules)
	return doc, names, err
}

var portShape = regexp.MustCompile(`^(.*):([0-9]+)$`)

// cutPort takes the port off a target.
func cutPort(target string) (host, port string, ok bool) {
	if m := portShape.FindStringSubmatch(target); m != nil {
		return m[1], m[2], true
	}
	return target, "", false
}

// maxTimes bounds how much output is looked through for times.
const maxTimes = 64 << 10

// bounded keeps the beginning of what is written, and takes all.
type bounded struct {
	to   *bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.to.Write(p[:min(len(p), max(0, b.most-b.to.Len()))])
	return len(p), nil
}

var tookShape = regexp.MustCompile(`(?m)^took ([0-9]{1,6}) ms: (.{0,60})`)

// took are the times that a program says its attempts took, and what the slowest
// was. It is its word, and a program that lies makes only its own wire look slow
// or fast.
func took(out []byte) (times []time.Duration, slowest string) {
	for _, m := range tookShape.FindAllSubmatch(out, 4096) {
		ms, _ := strconv.Atoi(string(m[1]))
		d := time.Duration(ms) * time.Millisecond
		if len(times) == 0 || d > slices.Max(times) {
			slowest = string(m[2])
		}
		times = append(times, d)
	}
	return times, slowest
}
