package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/keep"
)

const execAbout = `
Flags stop at the command; what follows belongs to it. Without -i it reads
nothing, -t gives it your terminal. Exit codes are those of ` + "`berm run`" + `; when
you leave, with Ctrl-C too, the command ends with all that it started, 10 s later
at most.

When the daemon is restarted meanwhile, berm waits up to 30 s for it and goes on
where it was: no byte is missing or comes twice. Not so with -t or --end-all, nor
while -i still has input to send: then the command ends. Exit code 123 says that
its end was not seen; berm says whether it may still be running.

With -d it goes on without you, and its id is printed: berm attach shows its
output from the start, berm ps how it does, berm kill ends it.

  berm exec $SB -- make test
  tar c src | berm exec -i $SB tar x
  X=$(berm exec -d $SB -- python3 -m http.server 8000)
  berm attach $X
`

// An execution is one command in a sandbox that stays.
type execution struct {
	env    *Env
	req    api.ExecRequest
	stdin  bool
	detach bool
	json   bool
}

func (x *execution) flags() flags {
	x.req.Env = map[string]string{}
	return flags{
		{name: "stdin", short: "i", help: "connect your standard input", set: toggle(&x.stdin)},
		{name: "tty", short: "t", help: "give it a terminal, yours", set: toggle(&x.req.TTY)},
		{name: "detach", short: "d", help: "let it go on without you, and print its id", set: toggle(&x.detach)},
		{name: "cwd", value: "DIR", help: "where it starts (default: /workspace)", set: text(&x.req.Dir)},
		{name: "env", short: "e", value: "K=V", help: "a variable; nothing of your own environment goes in (repeat)", set: setEnv(x.req.Env)},
		{name: "user", short: "u", value: "NAME", help: "agent, or root where the template grants it (default: agent)", set: text(&x.req.User)},
		{name: "timeout", value: "TIME", help: "wall clock (default: the sandbox's limit)", set: duration(&x.req.TimeoutSeconds)},
		{name: "session", value: "NAME", help: "only if this is the sandbox's session", set: text(&x.req.Session)},
		{name: "end-all", help: "end what it leaves in the background too", set: toggle(&x.req.EndAll)},
		{name: "json", help: "print one JSON object instead of the output", set: toggle(&x.json)},
	}
}

func execVerb() verb {
	x := &execution{}
	fs := x.flags()
	return verb{
		name: "exec", summary: "run a command in a sandbox", usage: "[FLAG...] SANDBOX [FLAG...] [--] COMMAND [ARG...]",
		flags: func() flags { return fs }, about: execAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			all := append(slices.Clone(fs), globalFlags(env)...)
			rest, _, err := all.parse(args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"exec"})
			}
			if err == nil && len(rest) == 0 {
				err = &fault{"exec", "no sandbox is named", "berm ls"}
			}
			var sandbox string
			if err == nil {
				sandbox = rest[0]
				rest, _, err = all.parse(rest[1:])
			}
			if err == nil {
				x.env, x.req.Args = env, rest
				err = x.check(sandbox)
			}
			if err != nil {
				return env.fail(err)
			}
			return env.asked(ctx, func(ctx context.Context, a *asker) error {
				id, err := a.sandbox(ctx, sandbox)
				if err != nil {
					return err
				}
				return x.run(ctx, a, id)
			})
		},
	}
}

func (x *execution) check(sandbox string) error {
	switch {
	case len(x.req.Args) == 0 || x.req.Args[0] == "":
		return &fault{"exec", "no command is given", "berm exec " + shellLine([]string{sandbox}) + " -- uname -a"}
	case x.req.TTY && x.json:
		return &fault{"-t", "gives the terminal to the command, so --json has nothing to report", "berm exec --json"}
	case x.req.TTY && !x.detach && (!isTerminal(x.env.Stdin) || !isTerminal(x.env.Stdout)):
		return &fault{"-t", "your input and output are not both a terminal", "leave -t out; -i passes a pipe or a file on"}
	}
	for i, arg := range x.req.Args {
		if !utf8.ValidString(arg) {
			return notText(fmt.Sprintf("argument %d", i))
		}
	}
	return nil
}

// run runs it in sandbox id; what it exits with is the error.
func (x *execution) run(ctx context.Context, a *asker, id string) error {
	if x.detach {
		x.req.Stdin = x.stdin // stays open for `berm attach -i`
		e, err := a.Spawn(ctx, id, x.req)
		if err != nil {
			return err
		}
		if x.json {
			return a.printed(e)
		}
		fmt.Fprintln(a.Stdout, shownName(e.ExecID))
		return nil
	}
	var undo atomic.Pointer[func()] // of the terminal's mode
	restore := func() {
		if f := undo.Load(); f != nil {
			(*f)()
		}
	}
	ctx, in := x.env.interruptible(ctx, restore, goneAfter)
	defer in.stop()
	limits := func() api.Limits {
		sb, _ := a.Get(context.WithoutCancel(ctx), id)
		return sb.Limits
	}
	sio, done, err := x.stdio(limits)
	if err != nil {
		return err
	}
	if x.req.TTY {
		f, err := makeRaw(x.env.Stdin)
		if err != nil {
			return &fault{"-t", err.Error(), ""}
		}
		undo.Store(&f)
		defer restore()
		size := windowSize(x.env.Stdin)
		x.req.Rows, x.req.Cols = size[0], size[1]
		sizes, stop := watchSize(x.env.Stdin)
		defer stop()
		sio.Resize = sizes
	}
	res, err := x.exec(ctx, a, id, sio)
	restore()
	var unread *client.Unread
	if errors.As(err, &unread) {
		err = unread.Err
	} else {
		done.close()
	}
	var ae *api.Error
	var adrift *client.Adrift
	switch {
	case errors.As(err, &adrift):
		x.env.explain(lostSight(adrift))
		return exitCode(exitLost)
	case errors.As(err, &ae):
		return err
	case err != nil && context.Cause(ctx) == errInterrupted:
		return exitCode(exitKilled)
	case errors.Is(err, client.ErrOutput):
		res = api.ExecResult{Ending: api.EndKilled, ExitCode: exitKilled, Reason: outputTrouble(err), CapsHit: []string{}}
	case err != nil:
		return err
	}
	if !slices.Contains(endings, res.Ending) {
		res.Ending, res.ExitCode, res.Reason = api.EndHostFailure, exitRefused, "the answer was not understood"
	}
	if x.json {
		if err := a.printed(done.answer(res)); err != nil {
			return err
		}
		return exitCode(res.ExitCode & 0xff)
	}
	if unread != nil {
		x.env.note("output: nobody read it; up to %d bytes are lost", unread.Lost)
	}
	x.env.tellEnd(x.req.Args, x.req.TimeoutSeconds, res, limits)
	return exitCode(res.ExitCode & 0xff)
}

// exec runs it where it outlives the daemon, if it can.
func (x *execution) exec(ctx context.Context, a *asker, id string, sio client.Stdio) (api.ExecResult, error) {
	if x.req.TTY || x.req.EndAll {
		return a.Exec(ctx, id, x.req, sio)
	}
	sio.Lost = func(n int64) { x.env.note("output: %d bytes are no longer kept", n) }
	return a.ExecKept(ctx, id, x.req, sio, func(why error) {
		x.env.note("%v; waiting for the daemon, %s at most", why, timeText(client.AwayFor.Seconds()))
	})
}

// lostSight is what is known of a command whose end was not seen.
func lostSight(d *client.Adrift) *fault {
	switch {
	case d.Ended:
		return &fault{"exec", d.Error() + ": it was ended", "berm attach " + d.ExecID}
	case d.ExecID == "":
		return &fault{"exec", d.Error() + ": the command had been started, and ends with its connection", "berm ps"}
	}
	return &fault{"exec", d.Error() + ": the command may still be running, until 10s after a daemon is back", "berm attach " + d.ExecID}
}

// tellEnd says on stderr what the exit code alone does not.
func (env *Env) tellEnd(args []string, timeout float64, res api.ExecResult, limits func() api.Limits) {
	if res.NotStarted != "" {
		name := "command"
		if len(args) > 0 {
			name = args[0]
		}
		env.explain(&fault{name, strings.TrimPrefix(res.NotStarted, name+": "), ""})
		return
	}
	if res.Ending == api.EndExit || res.Ending == api.EndSignal {
		if res.Reason != "" {
			env.note("output: %s", res.Reason)
		}
		return
	}
	lim := limits()
	create := "berm create"
	if res.Ending == api.EndTimeout {
		if timeout > 0 && (timeout < lim.TimeoutSeconds || lim.TimeoutSeconds <= 0) {
			lim.TimeoutSeconds, create = timeout, "berm exec"
		}
	}
	why, try := endingText(res, lim, create, "berm create")
	env.note("%s: %s", res.Ending, why)
	if try != "" {
		fmt.Fprintf(env.Stderr, "try: %s\n", try)
	}
}

// stdio opens the streams of a command for whoever reads them here.
func (x *execution) stdio(limits func() api.Limits) (client.Stdio, *outputs, error) {
	o := &outputs{}
	sio := client.Stdio{Stdout: x.env.Stdout, Stderr: x.env.Stderr}
	if x.json {
		n := limits().OutputBytes
		if n <= 0 || n > 1<<30 {
			n = api.DefaultOutputBytes
		}
		o.kept = [2]*keep.Keeper{keep.New(n), keep.New(n)}
		sio.Stdout, sio.Stderr = o.kept[0], o.kept[1]
	} else if !x.req.TTY {
		sio.Stdout, sio.Stderr = o.show(x.env.Stdout), o.show(x.env.Stderr)
	}
	if x.stdin || x.req.TTY {
		x.req.Stdin, sio.Stdin = true, x.env.Stdin
	}
	return sio, o, nil
}

// outputs are the ends that two streams of a command have here.
type outputs struct {
	shown []*shower
	kept  [2]*keep.Keeper
}

// show is f, or what stands before it where it is a terminal.
func (o *outputs) show(f *os.File) io.Writer {
	if !isTerminal(f) {
		return f
	}
	s := newShower(f)
	o.shown = append(o.shown, s)
	return s
}

func (o *outputs) close() {
	for _, s := range o.shown {
		s.Close()
	}
}

func (o *outputs) answer(res api.ExecResult) api.ExecAnswer {
	a := api.ExecAnswer{ExecResult: res, TimedOut: res.Ending == api.EndTimeout, DurationMS: int64(res.TimingsMS["exec"])}
	var dropped [2]int64
	a.Stdout, a.StdoutBase64, dropped[0] = o.kept[0].Result()
	a.Stderr, a.StderrBase64, dropped[1] = o.kept[1].Result()
	a.Truncated = api.Truncated{Stdout: dropped[0] > 0, Stderr: dropped[1] > 0, DroppedBytes: dropped[0] + dropped[1]}
	return a
}

const shellAbout = `
Opens bash, or sh where there is none, on your terminal. It may live as long as the
sandbox, or, where that was made with --timeout, as long as a command of it may.
`

// longest is the longest that a command of a sandbox may take, as far as that
// can be known.
func longest(sb api.Sandbox) float64 {
	if sb.Limits.TimeoutSeconds < 0 || sb.TTLSeconds <= 0 {
		return api.Unlimited
	}
	return sb.TTLSeconds
}

func shellVerb() verb {
	x := &execution{}
	all := x.flags()
	var fs flags
	for _, f := range all {
		if slices.Contains([]string{"cwd", "env", "user", "timeout"}, f.name) {
			fs = append(fs, f)
		}
	}
	return verb{
		name: "shell", summary: "open a shell in a sandbox", usage: "[FLAG...] SANDBOX",
		flags: func() flags { return fs }, about: shellAbout,
		run: ask("shell", fs, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			x.env = a.Env
			x.req.Args = []string{"sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh"}
			x.req.TTY = true
			if x.req.Env["TERM"] == "" {
				x.req.Env["TERM"] = "xterm-256color"
			}
			if !isTerminal(a.Stdin) || !isTerminal(a.Stdout) {
				return &fault{"shell", "your input and output are not both a terminal", "berm exec -i " + shellLine(args) + " -- sh"}
			}
			id, err := a.sandbox(ctx, args[0])
			if err != nil {
				return err
			}
			if x.req.TimeoutSeconds != 0 {
				return x.run(ctx, a, id)
			}
			sb, err := a.Get(ctx, id)
			if err != nil {
				return err
			}
			x.req.TimeoutSeconds = longest(sb)
			err = x.run(ctx, a, id)
			var ae *api.Error
			if l := sb.Limits.TimeoutSeconds; errors.As(err, &ae) && ae.Code == api.CodeBadRequest && strings.Contains(ae.Message, "timeout") {
				a.note("a command of this sandbox may take %s, the shell too (berm create --timeout 8h)", timeText(l))
				x.req.TimeoutSeconds = 0
				return x.run(ctx, a, id)
			}
			return err
		}),
	}
}
