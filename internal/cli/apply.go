package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/bermhq/berm/internal/here"
)

const applyAbout = `
RUN and PATHS are as with berm diff; without PATHS all of it is meant. Look first.

Everything is checked before anything is written. A file that is not what it was
when it went in is a conflict: both sides are shown, and nothing is written, of
no file. PATHS leave it out; --force replaces it. What the tree has already is
passed by.

Only the tree is written to, never through a symlink, whatever happens to the
tree meanwhile. A file is replaced as a whole or not at all. Nothing becomes
setuid; hard links become copies. A symlink comes only if it is relative and
stays in the tree.

What is below .git, or makes a folder a git repository, is code that runs on this
host: it never comes unless --git is given and PATHS name it. Other files that
tools run by themselves, as .envrc or .vscode, come with a warning.

The exit code is 1 if something is in conflict or was refused, and 0 otherwise.

  berm apply last
  berm apply last src go.mod
  berm apply last --check`

func applyVerb() verb {
	return verb{
		name: "apply", summary: "bring what a run with --here changed back into the tree", usage: "RUN [PATH...] [FLAG...]", about: applyAbout, own: true,
		flags: func() flags { return new(applyFlags).flags() },
		run: func(_ context.Context, env *Env, args []string) int {
			var o applyFlags
			args, err := append(o.flags(), globalFlags(env)[:1]...).among(args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"apply"})
			}
			if err == nil {
				err = argCount("apply", args, 1, -1)
			}
			if err != nil {
				return env.fail(err)
			}
			return env.apply(&o, args)
		},
	}
}

type applyFlags struct {
	here.ApplyOptions
	json bool
}

func (o *applyFlags) flags() flags {
	return flags{
		{name: "check", help: "say what would be done, and write nothing", set: toggle(&o.Check)},
		{name: "force", help: "replace what was changed in the tree since", set: toggle(&o.Force)},
		{name: "git", help: "with PATHS that name it: what belongs to a git repository too", set: toggle(&o.Git)},
		{name: "json", help: "print one JSON object", set: toggle(&o.json)},
	}
}

// applyJSON is what apply prints with --json.
type applyJSON struct {
	Run       string         `json:"run"`
	Tree      string         `json:"tree"`
	Done      []hereChange   `json:"done"`
	Already   []hereChange   `json:"already"`
	Conflicts []conflictJSON `json:"conflicts"`
	Refused   []here.Left    `json:"refused"`
	Git       []string       `json:"git"` // left out
	Warnings  []here.Left    `json:"warnings"`
	Notes     []string       `json:"notes"`
}

type conflictJSON struct {
	hereChange
	Now *here.Side `json:"now"`
	Why string     `json:"why"`
}

func (env *Env) apply(o *applyFlags, args []string) int {
	r, err := env.hereRunOf(args[0])
	if err != nil {
		return env.fail(err)
	}
	defer r.Close()
	if r.Lost != "" {
		return env.fail(&fault{"apply " + args[0], "what it changed is lost: " + r.Lost, "berm run --here ..., again"})
	}
	if r.Cut != "" && len(args) == 1 && !o.Force {
		return env.fail(&fault{"apply " + args[0], "not all of it came: " + r.Cut, "berm apply " + args[0] + " PATHS, or --force"})
	}
	list, err := r.Select(args[1:])
	if err != nil {
		return env.fail(err)
	}
	a, err := r.Apply(list, args[1:], o.ApplyOptions)
	if err != nil {
		return env.fail(err)
	}
	code := exitOK
	if len(a.Conflicts) > 0 && (!o.Force || len(a.Done) == 0) || len(a.Refused) > 0 || unresolved(a) {
		code = 1
	}
	if o.json {
		if c := env.print(applied(r, a)); c != exitOK {
			return c
		}
		return code
	}
	return env.tellApplied(r, a, o, args, code)
}

// unresolved says that a conflict was not overcome by force.
func unresolved(a *here.Applied) bool {
	done := map[string]bool{}
	for _, c := range a.Done {
		done[c.Path] = true
	}
	for _, c := range a.Conflicts {
		if !done[c.Path] {
			return true
		}
	}
	return false
}

func applied(r *here.Run, a *here.Applied) applyJSON {
	j := applyJSON{Run: r.ID, Tree: r.Tree, Done: hereChanges(a.Done), Already: hereChanges(a.Already), Conflicts: []conflictJSON{},
		Refused: []here.Left{}, Git: []string{}, Warnings: []here.Left{}, Notes: []string{}}
	for _, c := range a.Conflicts {
		j.Conflicts = append(j.Conflicts, conflictJSON{hereChanges([]*here.Change{c.Change})[0], c.Now, c.Why})
	}
	j.Refused, j.Git = append(j.Refused, a.Refused...), append(j.Git, a.Git...)
	j.Warnings, j.Notes = append(j.Warnings, a.Warnings...), append(j.Notes, a.Notes...)
	return j
}

func (env *Env) tellApplied(r *here.Run, a *here.Applied, o *applyFlags, args []string, code int) int {
	if err := r.Diff(env.Stdout, a.Done, here.DiffOptions{Format: here.NameStatus}); err != nil {
		env.explain(&fault{"standard output", unwrapPath(err).Error(), "berm diff --name-status " + r.ID})
	}
	colour := isTerminal(env.Stderr) && os.Getenv("NO_COLOR") == ""
	const most = 20
	for i := range a.Conflicts {
		c := &a.Conflicts[i]
		env.note("conflict: %s %s", here.Printable(c.Path), c.Why)
		if i < most {
			r.ShowConflict(env.Stderr, c, colour)
		}
	}
	env.tellLeft("refused", a.Refused)
	if n := len(a.Git); n > 0 {
		env.note("left out %s of a git repository, which this host would run: %s; to take one: berm apply %s --git %s",
			counted1(n, "change"), firstNames(a.Git), args[0], shellLine(a.Git[:1]))
	}
	env.tellLeft("careful", a.Warnings)
	for _, n := range a.Notes {
		env.note("%s", n)
	}
	switch n := r.Shown(a.Done); {
	case len(a.Conflicts) > 0 && !o.Force && n == 0:
		env.note("nothing was written: %s in conflict", counted1(len(a.Conflicts), "file"))
		fmt.Fprintf(env.Stderr, "try: berm apply %s PATHS, to leave them out, or berm apply --force %s, to replace them\n", oneLine(args[0]), oneLine(args[0]))
	case o.Check:
		env.note("%s would be written to %s", counted1(n, "change"), r.Tree)
	case n == 0 && len(a.Already) > 0:
		env.note("%s has it already", r.Tree)
	case n == 0 && len(a.Refused)+len(a.Git) == 0:
		env.note("the run changed nothing")
	default:
		env.note("%s written to %s", counted1(n, "change"), r.Tree)
	}
	return code
}

func firstNames(names []string) string {
	const most = 3
	out := ""
	for i, n := range names {
		if i == most {
			return out + fmt.Sprintf(" and %d more", len(names)-most)
		}
		if i > 0 {
			out += ", "
		}
		out += here.Printable(n)
	}
	return out
}
