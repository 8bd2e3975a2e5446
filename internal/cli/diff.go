package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/here"
)

const diffAbout = `
RUN is the id that berm run --here named, the start of one, or last: the newest
run of the tree that you are in. PATHS are as the diff shows them: files, folders
with all that is in them, or globs. It needs no daemon and no sandbox.

What is shown is what the program left, against what went in: it stays the same
when the tree changes. Names and contents are made harmless: what a terminal
would obey is shown, as \x1b. --raw writes bytes as they are, for git apply,
and leaves .git out.

The exit code is 0 whether or not something changed, as with git diff;
--exit-code makes it 1 if something did.

Kept are the last 20 runs, for 7 days, in the state directory.

  berm diff last
  berm diff last src --stat
  berm diff r4kq --raw | git apply --3way`

func diffVerb() verb {
	return verb{
		name: "diff", summary: "show what a run with --here changed", usage: "RUN [PATH...] [FLAG...]", about: diffAbout, own: true,
		flags: func() flags { return new(diffFlags).flags() },
		run: func(_ context.Context, env *Env, args []string) int {
			var o diffFlags
			args, err := append(o.flags(), globalFlags(env)[:1]...).among(args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"diff"})
			}
			if err == nil && !o.list {
				err = argCount("diff", args, 1, -1)
			}
			if err != nil {
				return env.fail(err)
			}
			return env.diff(&o, args)
		},
	}
}

type diffFlags struct {
	stat, names, json, raw, code, list bool
}

func (o *diffFlags) flags() flags {
	return flags{
		{name: "stat", help: "how many lines of each file", set: toggle(&o.stat)},
		{name: "name-status", help: "names only: M changed, A added, D removed, T of another kind", set: toggle(&o.names)},
		{name: "json", help: "print one JSON object", set: toggle(&o.json)},
		{name: "raw", help: "write bytes as they are, for a program that applies them", set: toggle(&o.raw)},
		{name: "exit-code", help: "exit with 1 if there are changes", set: toggle(&o.code)},
		{name: "list", help: "list the runs that are kept", set: toggle(&o.list)},
	}
}

// hereRunOf opens the run that an argument means.
func (env *Env) hereRunOf(name string) (*here.Run, error) {
	st, _, err := env.hereState()
	if err != nil {
		return nil, err
	}
	return st.Find(name, env.cwd())
}

// cwd is where berm was called, without links; "/" if nobody knows.
func (env *Env) cwd() string {
	wd, err := os.Getwd()
	if err == nil {
		wd, err = filepath.EvalSymlinks(wd)
	}
	if err != nil {
		return "/"
	}
	return wd
}

// hereJSON is what diff and apply print with --json.
type hereJSON struct {
	here.Info
	Changes []hereChange `json:"changes"`
	Left    []here.Left  `json:"left"` // came out, and is not believed
	Cut     string       `json:"cut,omitempty"`
}

type hereChange struct {
	Path   string     `json:"path"`
	Status string     `json:"status"` // M, A, D or T
	Before *here.Side `json:"before,omitempty"`
	After  *here.Side `json:"after,omitempty"`
}

func hereChanges(list []*here.Change) []hereChange {
	out := []hereChange{}
	for _, c := range list {
		out = append(out, hereChange{Path: strings.ToValidUTF8(c.Path, "\uFFFD"), Status: c.Status(), Before: c.Before, After: c.After})
	}
	return out
}

func (env *Env) diff(o *diffFlags, args []string) int {
	if o.list {
		return env.listRuns(o.json)
	}
	r, err := env.hereRunOf(args[0])
	if err != nil {
		return env.fail(err)
	}
	defer r.Close()
	list, err := r.Select(args[1:])
	if err != nil {
		return env.fail(err)
	}
	code := exitOK
	if o.code && len(list) > 0 {
		code = 1
	}
	if o.json {
		j := hereJSON{Info: r.Info, Changes: hereChanges(list), Left: r.Left, Cut: r.Cut}
		if j.Left == nil {
			j.Left = []here.Left{}
		}
		if c := env.print(j); c != exitOK {
			return c
		}
		return code
	}
	opt := here.DiffOptions{Raw: o.raw, Colour: !o.raw && isTerminal(env.Stdout) && os.Getenv("NO_COLOR") == ""}
	switch {
	case o.stat:
		opt.Format = here.Stat
	case o.names:
		opt.Format = here.NameStatus
	}
	if o.raw && len(args) == 1 { // git apply takes nothing of a repository
		var n int
		if list, n = here.OutsideGit(list); n > 0 {
			env.note("left out %s of a git repository; PATHS that name them show them", counted1(n, "change"))
		}
	}
	if err := r.Diff(env.Stdout, list, opt); err != nil {
		return env.fail(&fault{"standard output", unwrapPath(err).Error(), "send it to a place that takes it"})
	}
	env.tellRun(r)
	return code
}

// tellRun says what a run's list does not.
func (env *Env) tellRun(r *here.Run) {
	switch {
	case r.Lost != "":
		env.note("what it changed is lost: %s", r.Lost)
	case r.Cut != "":
		env.note("not all of it came: %s", r.Cut)
	case len(r.List) == 0:
		env.note("nothing was changed")
	}
	env.tellLeft("left out", r.Left)
}

// tellLeft names some of what is not done, and why.
func (env *Env) tellLeft(what string, list []here.Left) {
	const most = 10
	for i, l := range list {
		if i == most {
			env.note("%s: %d more", what, len(list)-most)
			return
		}
		env.note("%s: %s: %s", what, l.Path, l.Why)
	}
}

func (env *Env) listRuns(asJSON bool) int {
	st, _, err := env.hereState()
	if err != nil {
		return env.fail(err)
	}
	list := st.Runs()
	if asJSON {
		if list == nil {
			list = []here.Info{}
		}
		return env.print(list)
	}
	for _, i := range list {
		fmt.Fprintf(env.Stdout, "%s  %s  %s  %s  %s\n", i.ID, i.Ended.Local().Format(time.DateTime), oneLine(i.Tree),
			oneLine(firstOf(i.Ending, api.EndExit)), oneLine(shellLine(i.Command)))
	}
	return exitOK
}
