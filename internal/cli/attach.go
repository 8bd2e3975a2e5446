package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const attachAbout = `
Shows the output of a command that was started with -d, from its start on, and
ends with its exit code. What was written between its first and its last part may
be gone; berm says how much. Ctrl-C leaves, and the command goes on; berm kill
ends it. When the daemon is restarted meanwhile, attach waits for it and goes on
where it was.
`

// awayFor is how long a daemon may be gone before a follower gives up.
const awayFor = client.AwayFor

func attachVerb() verb {
	var stdin, noFollow bool
	var offset int64
	fs := flags{
		{name: "stdin", short: "i", help: "send it your standard input, to its end", set: toggle(&stdin)},
		{name: "no-follow", help: "only what it has written so far", set: toggle(&noFollow)},
		{name: "offset", value: "N", help: "leave out that many bytes", set: wholeNumber(&offset)},
	}
	return verb{
		name: "attach", summary: "show the output of a command that goes on by itself", usage: "[FLAG...] [SANDBOX] COMMAND-ID",
		flags: func() flags { return fs }, about: attachAbout,
		run: ask("attach", fs, 1, 2, func(ctx context.Context, a *asker, args []string) error {
			sandbox := ""
			if len(args) == 2 {
				sandbox = args[0]
			}
			id, exec, err := a.exec(ctx, sandbox, args[len(args)-1])
			if err != nil {
				return err
			}
			ctx, in := a.interruptible(ctx, func() {}, time.Second)
			defer in.stop()
			if stdin {
				go func() {
					if _, err := a.WriteStdin(ctx, id, exec, a.Stdin, true); err != nil && ctx.Err() == nil {
						a.explain(err)
					}
				}()
			}
			x, err := a.follow(ctx, id, exec, offset, !noFollow)
			switch {
			case err != nil && context.Cause(ctx) == errInterrupted:
				a.note("left; it goes on (berm kill %s ends it)", short(exec))
				return exitCode(130)
			case err != nil:
				return err
			case x.Result == nil:
				return nil
			}
			limits := func() api.Limits {
				sb, _ := a.Get(ctx, id)
				return sb.Limits
			}
			a.tellEnd(x.Args, x.TimeoutSeconds, *x.Result, limits)
			return exitCode(x.Result.ExitCode & 0xff)
		}),
	}
}

// follow writes the output of a command, over broken connections too.
func (a *asker) follow(ctx context.Context, id, exec string, offset int64, follow bool) (api.Exec, error) {
	o := &outputs{}
	stdout, stderr := o.show(a.Stdout), o.show(a.Stderr)
	defer o.close()
	var x api.Exec
	err := a.again(ctx, func() (moved bool, err error) {
		from := offset
		x, err = a.Follow(ctx, id, exec, offset, follow, func(c api.Chunk) error {
			if c.Gap > 0 {
				a.note("output: %d bytes are no longer kept", c.Gap)
			}
			w := stdout
			if c.Stream == "stderr" {
				w = stderr
			}
			if _, err := w.Write(c.Data); err != nil {
				return &fault{"output", outputTrouble(err), ""}
			}
			offset = c.Offset + int64(len(c.Data))
			return nil
		})
		return offset > from, err
	})
	return x, err
}

// again calls f again while the connection breaks, as long as the daemon is not
// away for too long at a time. moved says that something came.
func (a *asker) again(ctx context.Context, f func() (moved bool, err error)) error {
	gone := time.Now()
	for {
		began := time.Now()
		moved, err := f()
		if !client.Broken(err) || ctx.Err() != nil {
			return err
		}
		if moved || time.Since(began) > awayFor {
			gone = time.Now()
		}
		if time.Since(gone) > awayFor {
			return err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wholeNumber is a setter for a number from zero on.
func wholeNumber(p *int64) func(string) error {
	return func(s string) error {
		n, err := parseWhole(s)
		*p = n
		return err
	}
}

func parseWhole(s string) (n int64, err error) {
	for _, c := range s {
		if c < '0' || c > '9' || n > 1<<58 {
			return 0, errors.New("is not a whole number")
		}
		n = n*10 + int64(c-'0')
	}
	if s == "" {
		return 0, errEmpty
	}
	return n, nil
}

const logsAbout = `
What the sandbox has logged: the output of its commands, as far as it is kept.
With -f it goes on until the sandbox ends; Ctrl-C leaves.
`

func logsVerb() verb {
	var o client.LogOptions
	var tail int64
	fs := flags{
		{name: "follow", short: "f", help: "go on with what comes", set: toggle(&o.Follow)},
		{name: "tail", short: "n", value: "N", help: "only the last lines", set: wholeNumber(&tail)},
		{name: "stream", value: "NAME", help: "stdout or stderr (default: both)", set: oneWord(&o.Stream, "stdout", "stderr", "both")},
	}
	return verb{
		name: "logs", summary: "show what a sandbox has logged", usage: "[FLAG...] SANDBOX", flags: func() flags { return fs }, about: logsAbout,
		run: ask("logs", fs, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			id, err := a.everSandbox(ctx, args[0])
			if err != nil {
				return err
			}
			o.Tail = int(min(tail, 1<<30))
			out := &outputs{}
			defer out.close()
			ctx, in := a.interruptible(ctx, func() {}, time.Second)
			defer in.stop()
			return left(ctx, a.Logs(ctx, id, o, out.show(a.Stdout)))
		}),
	}
}

// oneWord is a setter for one of a few words.
func oneWord(p *string, known ...string) func(string) error {
	return func(s string) error {
		for _, k := range known {
			if s == k {
				*p = s
				return nil
			}
		}
		why := "is none of " + strings.Join(known, ", ")
		if near := nearest(s, known); near != "" {
			why += "; " + near + "?"
		}
		return errors.New(why)
	}
}
