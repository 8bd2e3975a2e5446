package cli

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

func runVerb() verb {
	return verb{
		name:    "run",
		summary: "run code that nobody reviewed in a fresh sandbox, and leave nothing behind",
		usage:   "[FLAG...] FILE [ARG...] | -- COMMAND [ARG...] | --code STRING --lang NAME | -",
		flags:   func() flags { return new(runOptions).flags() },
		about:   runAbout,
		run:     func(ctx context.Context, env *Env, args []string) int { return env.run(ctx, args) },
	}
}

// run parses, refuses what cannot be, and runs the rest.
func (env *Env) run(ctx context.Context, args []string) int {
	r := &runner{env: env, started: time.Now()}
	rest, dashes, err := append(r.opt.flags(), globalFlags(env)...).parse(args)
	if err == errHelp {
		help(env, env.Stdout, []string{"run"})
		return exitOK
	}
	if err == nil && r.opt.wire.policy == "-" && !dashes && len(rest) > 0 && rest[0] == "-" {
		err = &fault{"--policy -", "takes all of standard input, so there is no program in it", "--policy FILE"}
	}
	if err == nil {
		err = r.check(ctx)
	}
	if err == nil {
		err = r.opt.here.check()
	}
	if err == nil {
		err = r.opt.legible(rest)
	}
	if err == nil && r.opt.own(rest, dashes) {
		r.asImage = true // its own command, which is known once it is there
	} else if err == nil {
		r.asImage = dashes && r.opt.imaged() // its entrypoint goes before the command
		r.steps, err = r.opt.program(rest, dashes, env.Stdin)
	}
	if err == nil && !dashes && !r.opt.hasCode && len(rest) > 1 {
		r.late = new(runOptions).flags().late(rest[0], rest[1:])
	}
	if err != nil {
		return r.refuse(err)
	}
	return r.run(ctx)
}

// check refuses flags that cannot go together, before anything is started.
func (r *runner) check(ctx context.Context) error {
	o := &r.opt
	if o.tty {
		switch {
		case o.json:
			return &fault{"-t", "gives the terminal to the program, so --json has nothing to report", "berm run --json"}
		case !isTerminal(r.env.Stdin) || !isTerminal(r.env.Stdout):
			return &fault{"-t", "your input and output are not both a terminal", "leave -t out; --stdin passes a pipe or a file on"}
		}
	}
	if i := o.isolation; i != "" && i != api.IsolationAuto && i != api.IsolationGVisor {
		return r.env.unknownIsolation(ctx, i)
	}
	if o.wire.policy == "-" && o.stdin {
		return &fault{"--policy -", "takes all of standard input, so nothing is left for --stdin", "--policy FILE"}
	}
	if err := o.wire.check(r.env.Stdin, &o.limits); err != nil {
		return err
	}
	_, err := o.wire.egress()
	return err
}

// A runner is one `berm run`.
type runner struct {
	env     *Env
	opt     runOptions
	steps   []step
	asImage bool   // the template's entrypoint, and without steps its command
	late    *fault // a flag of berm's that stands where it is the program's
	started time.Time

	progress progress
	restore  atomic.Pointer[func()] // of the terminal
	session  *Session
	daemon   bool          // session is one that others use too
	bound    *client.Bound // holds the sandbox of a daemon
	sandbox  api.Sandbox
	report   api.RunReport
	result   api.ExecResult
	stdout   output
	stderr   output
	unread   *client.Unread // output that nobody took
	replaced []string       // files of the caller's
	here     *hereRun       // the tree that goes in, if one does
	failure  error          // trouble of Berm's own, beside the ending
}

func (r *runner) restoreTerminal() {
	if f := r.restore.Load(); f != nil {
		(*f)()
	}
}

// run is the life of one sandbox, from nothing to nothing.
func (r *runner) run(ctx context.Context) int {
	ctx, in := r.env.interruptible(ctx, r.restoreTerminal, goneAfter)
	defer in.stop()
	defer r.restoreTerminal()
	if isTerminal(r.env.Stderr) {
		r.progress.w = r.env.Stderr
	}
	r.report = api.RunReport{
		RunID: api.NewID(api.KindRun), CapsHit: []string{}, HostFactsWeakening: []string{}, TimingsMS: map[string]float64{},
		Artifacts: []api.Artifact{}, Denied: []api.Denial{}, Hosts: []string{}, Tags: r.opt.tags,
	}
	if r.report.Template = r.opt.template; r.report.Template == "" {
		r.report.Template = "host"
	}

	ran, err := r.inside(ctx)
	r.progress.phase("")
	r.restoreTerminal()
	r.closeOutput()
	r.teardown()
	interrupted := err != nil && context.Cause(ctx) == errInterrupted
	in.leave(r.lastCode(ran, interrupted))
	if interrupted {
		if !ran {
			return r.refuse(&api.Error{Code: api.CodeInterrupted, Message: "run: interrupted, nothing was executed"})
		}
		err = nil
		r.result = api.ExecResult{Ending: api.EndKilled, ExitCode: exitKilled, Reason: "interrupted", CapsHit: r.result.CapsHit}
	}
	if !ran {
		return r.refuse(err)
	}
	if err != nil {
		r.failure = err
	}
	return r.finish()
}

// lastCode is the exit code if nobody takes what is still to be said, and
// whether that may be waited for as long as it takes.
func (r *runner) lastCode(ran, interrupted bool) (code int, byItself bool) {
	switch {
	case ran && interrupted:
		return exitKilled, false
	case !ran:
		return exitRefused, true
	case r.opt.json:
		code = exitRefused // there is no report
	default:
		code = r.result.ExitCode & 0xff
	}
	return code, r.result.Ending == api.EndExit || r.result.Ending == api.EndSignal
}

// inside does everything that needs the sandbox. ran says that the program, or
// the first step of it, was executed.
func (r *runner) inside(ctx context.Context) (ran bool, err error) {
	lap := r.lap()
	r.progress.phase("preparing")
	if err := r.startHere(); err != nil {
		return false, err
	}
	defer r.here.close()
	if err := r.open(ctx); err != nil {
		return false, err
	}
	if err := r.entry(ctx); err != nil {
		return false, err
	}
	lap("open")
	tree, err := r.sendHere(ctx)
	if err != nil {
		return false, err
	}
	if tree != "" {
		lap("here")
	}
	r.progress.phase("starting the sandbox")
	req := api.CreateRequest{
		Template: r.session.Template, Isolation: r.opt.isolation, Limits: r.opt.limits, Tags: r.opt.tags, RunID: r.report.RunID, Workspace: tree,
	}
	if err := r.opt.wire.put(&req); err != nil {
		return false, err
	}
	if r.daemon {
		if req.TTLSeconds == 0 {
			req.TTLSeconds = r.ttl()
		}
		r.sandbox, r.bound, err = r.session.Client.CreateBound(ctx, req)
	} else {
		r.sandbox, err = r.session.Client.Create(ctx, req)
	}
	if err != nil {
		return false, err
	}
	lap("create")
	r.openOutput()
	if len(r.opt.in) > 0 {
		r.progress.phase("copying in")
		if err := r.copyIn(ctx); err != nil {
			return false, err
		}
		lap("in")
	}
	r.progress.phase("")
	ran, err = r.execute(ctx)
	lap("exec")
	if ran && r.here != nil && r.result.NotStarted == "" {
		r.progress.phase("looking at what changed")
		r.keepHere(ctx, err)
		lap("changes")
	}
	if !ran || err != nil {
		return ran, err
	}
	if len(r.opt.out) > 0 && r.result.NotStarted == "" {
		r.progress.phase("bringing files out")
		r.bringOut(ctx)
		lap("out")
	}
	return true, context.Cause(ctx)
}

// lap returns a stopwatch that notes how long each part took.
func (r *runner) lap() func(part string) {
	last := time.Now()
	return func(part string) {
		now := time.Now()
		r.report.TimingsMS[part] = milliseconds(now.Sub(last))
		last = now
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// teardown ends the sandbox and whatever was started for it. It does not depend
// on how the run went, only on its own deadline.
func (r *runner) teardown() {
	if r.session == nil {
		return
	}
	began := time.Now()
	if r.sandbox.SandboxID != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		end, err := r.session.Client.Delete(ctx, r.sandbox.SandboxID)
		if r.bound != nil {
			r.bound.Close()
		}
		if err != nil && (r.bound == nil || !client.Broken(err)) { // what was held ends without being asked
			r.failure = err
		}
		r.report.Usage = end.Usage
		r.report.CapsHit = end.CapsHit
		r.report.Hosts = union(r.report.Hosts, end.Hosts)
		r.report.Denied = append(r.report.Denied, end.Denied...)
		r.report.DeniedTruncated = end.DeniedTruncated
		r.report.Faults, r.report.Wanted = end.Faults, end.Wanted
		for part, v := range end.TimingsMS {
			if part != "create" && part != "teardown" { // those are timed from here
				r.report.TimingsMS["sandbox_"+part] = v
			}
		}
	}
	if err := r.session.Close(); err != nil && r.failure == nil {
		r.failure = err
	}
	r.report.TimingsMS["teardown"] = milliseconds(time.Since(began))
}
