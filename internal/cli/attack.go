package cli

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack"
)

const attackAbout = `
Starts hostile programs, each in a fresh sandbox, and judges them from outside:
values planted in files, in the environment and in other processes of this host
must not come out; servers on loopback and unix sockets must not be called; the
host's processes, cgroups, mounts and state directory must be as before; endings
and recorded caps must be what the contract names. Attacks on the wire run in
two network namespaces of their own, in which every address is a server that
must not be reached; those need root. What a program says of itself
proves only that it ran.

Verdicts: contained; breached; not-applicable, when it needs a part that is not
built yet; inconclusive, when it could not be judged. SEEN says whether a denial
or cap that is due was recorded. A breach and an attempt that nobody saw are
findings.

Programs that do normal work run after them (--only benign). One that is hindered,
or of which a denial or a cap is recorded, is a false block, and a finding.

Exit code 0 if nothing was found, 1 on a finding, 2 if a case could not be
judged, 125 if nothing could be measured.

With --against another sandbox is attacked: a command line with the word {} where
the program goes. The same programs run in it, inside a cgroup of the suite's that
keeps the host, and are judged by the same evidence. What only Berm has (its API,
records and endings) is not applicable. In the command line {memory}, {disk} and
{pids} are the caps of the case and {seconds} its deadline, {dir} is a folder with
the program's files, which it does not need, and {cgroup} is the suite's group,
for what a daemon starts: docker run --cgroup-parent {cgroup} ...

Nothing is attacked where caps do not hold: the suite's own programs would be let
loose on the host.

What it plants is called berm-canary-..., is worth nothing, never replaces a
file, and is removed again. Run nothing else in the same state directory
meanwhile.

  berm attack
  berm attack --only exhaustion,credentials
  berm attack --against 'bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp {}'
  berm attack --json | jq '.cases[] | select(.verdict != "contained")'
  berm attack --format html -o report.html && berm attack verify report.html
`

type attackOptions struct {
	only     []string
	rungs    []string // all that were asked for
	tools    string   // where public tools are
	short    bool
	against  attack.External
	external string // the same as it was given
	out      attackOut
}

func (o *attackOptions) flags() flags {
	return append(flags{
		{name: "only", value: "NAME,...", help: "families or cases: " + strings.Join(attack.Families, ", ") + ", or benign", set: func(s string) error {
			o.only = append(o.only, strings.Split(s, ",")...)
			return nil
		}},
		{name: "isolation", value: "KIND,...", help: "auto or gvisor (default: auto); several one after the other", set: func(s string) error {
			o.rungs = append(o.rungs, strings.Split(s, ",")...)
			return nil
		}},
		{name: "against", value: "COMMAND", help: "attack another sandbox: a command line with {} where the program goes", set: func(s string) (err error) {
			o.external = s
			o.against, err = attack.ParseExternal(s)
			return err
		}},
		{name: "tools", value: "FOLDER", help: "run public tools that are in it and in no template: " + strings.Join(attack.Given(), ", "), set: text(&o.tools)},
		{name: "short", help: "without the cases that take long", set: toggle(&o.short)},
	}, o.out.flags()...)
}

func attackVerb() verb {
	return verb{
		name: "attack", own: true, summary: "try to get past the walls, and judge it from outside",
		usage: "[--only NAME,...] [--isolation KIND,...] [--against COMMAND] [--short] [--tools FOLDER] [--format FORM] [-o FILE] | verify REPORT | render REPORT",
		flags: func() flags { return new(attackOptions).flags() }, about: attackAbout,
		subs: []verb{attackVerifyVerb(), attackRenderVerb()},
		run: func(ctx context.Context, env *Env, args []string) int {
			var o attackOptions
			rest, _, err := append(o.flags(), globalFlags(env)...).parse(args)
			absent := map[string]string{}
			if err == nil {
				absent, err = env.absentRungs(ctx, &o)
			}
			switch {
			case err != nil:
			case len(rest) > 0:
				err = &fault{"attack", "takes no arguments", "berm attack --only " + rest[0]}
			case o.against != nil && len(o.rungs) > 0:
				err = &fault{"--against", "another sandbox has no rungs of Berm's", "leave --isolation out"}
			case env.Open == nil:
				err = &fault{"attack", "this build cannot start sandboxes", "berm version"}
			}
			if err == nil {
				err = o.out.ready(env)
			}
			if err != nil {
				return env.fail(err)
			}
			return env.attack(ctx, o, absent)
		},
	}
}

func (env *Env) attack(ctx context.Context, o attackOptions, absent map[string]string) int {
	ctx, in := env.interruptible(ctx, func() {}, 0)
	defer in.stop()
	v := attackView{env: env, out: o.out.table(env)}
	if isTerminal(env.Stderr) {
		v.progress.w = env.Stderr
	}
	v.progress.phase("preparing")
	rep, err := env.attackAll(ctx, o, absent, &v)
	v.progress.phase("")
	if err != nil && context.Cause(ctx) == errInterrupted {
		env.note("attack: interrupted; what was planted is gone again")
		return exitKilled
	}
	if err != nil {
		return env.fail(err)
	}
	v.sum(rep.Summary)
	v.again(o, rep)
	if err := o.out.deliver(env, rep); err != nil {
		return env.fail(err)
	}
	switch {
	case rep.Summary.Findings > 0:
		return 1
	case rep.Summary.Inconclusive > 0:
		return 2
	}
	return exitOK
}

// absentRungs takes those that were asked for apart: o.rungs keeps the ones that
// are here, or are not known to be missing; the others come with their reason. If
// none is here, nothing can be measured.
func (env *Env) absentRungs(ctx context.Context, o *attackOptions) (map[string]string, error) {
	absent := map[string]string{}
	for _, name := range o.rungs {
		if name == api.IsolationAuto || name == api.IsolationGVisor {
			continue
		}
		why := ""
		if env.Rungs != nil {
			for _, r := range env.Rungs(ctx) {
				if r.Name == name && !r.Available {
					why = "this host has no such rung: " + r.Reason
				}
			}
		}
		if name == api.IsolationMicroVM && why == "" {
			why = "waits for a part that is not built yet: the rung " + name
		}
		if why == "" {
			return nil, env.unknownIsolation(ctx, name)
		}
		absent[name] = why
	}
	if len(absent) > 0 && len(absent) == len(o.rungs) {
		return nil, env.unknownIsolation(ctx, o.rungs[0])
	}
	return absent, nil
}

// attackAll attacks every rung that was asked for, and puts the reports together.
func (env *Env) attackAll(ctx context.Context, o attackOptions, absent map[string]string, v *attackView) (attack.Report, error) {
	if len(o.rungs) == 0 {
		return attack.Run(ctx, env.attackOn("", o, v))
	}
	var all attack.Report
	for i, rung := range o.rungs {
		opt := env.attackOn(rung, o, v)
		opt.Absent = absent[rung]
		rep, err := attack.Run(ctx, opt)
		if err != nil {
			return all, err
		}
		if i == 0 {
			all = rep
		} else {
			all.Join(rep)
		}
	}
	return all, nil
}

func (env *Env) attackOn(rung string, o attackOptions, v *attackView) attack.Options {
	var serve func(context.Context, string, []string) (*attack.Daemon, error)
	if env.Serve != nil {
		serve = env.attackServe
	}
	open := func(ctx context.Context, template string, link bool) (*attack.Session, error) {
		s, err := env.Open(ctx, OpenOptions{StateDir: env.StateDir, Template: template, Isolation: rung, Link: link, Progress: v.progress.update})
		if err != nil {
			return nil, err
		}
		return &attack.Session{Client: s.Client, Template: s.Template, StateDir: s.StateDir, Close: s.Close, Extract: s.Extract}, nil
	}
	opt := attack.Options{
		Open:         func(ctx context.Context, link bool) (*attack.Session, error) { return open(ctx, "", link) },
		OpenTemplate: func(ctx context.Context, name string) (*attack.Session, error) { return open(ctx, name, false) },
		Tools:        o.tools,
		Berm:         env.self,
		Serve:        serve,
		StandIn:      env.standIn(rung),
		Again: func(ctx context.Context, only []string) *exec.Cmd {
			return env.attackAgain(ctx, rung, o.external, only)
		},
		Target: strings.TrimSpace("berm " + env.Version.Version), Command: o.command(), Isolation: rung, Only: o.only, Short: o.short,
		Began: v.began, Ended: v.ended, Worked: v.worked,
	}
	if o.against != nil {
		opt.Against, opt.Target, opt.Isolation = o.against, o.external, "external"
	}
	return opt
}

// attackAgain is this program, attacking with some of the cases.
func (env *Env) attackAgain(ctx context.Context, rung, external string, only []string) *exec.Cmd {
	args := []string{"attack", "--json", "--only", strings.Join(only, ",")}
	if rung != "" {
		args = append(args, "--isolation", rung)
	}
	if external != "" {
		args = append(args, "--against", external)
	}
	return env.self(ctx, args...)
}

// self is this program with other arguments and the same state directory.
func (env *Env) self(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = "berm"
	if env.StateDir != "" { // not as a flag: verbs have it in different places
		cmd.Env = append(cmd.Environ(), "BERM_STATE="+env.StateDir)
	}
	return cmd
}

// An attackView shows verdicts to a person as they come.
type attackView struct {
	env      *Env
	out      io.Writer
	progress progress
	family   string
}

func (v *attackView) began(c attack.Case) { v.progress.phase("case " + c.ID) }

func (v *attackView) ended(r attack.Result) {
	v.progress.phase("")
	if r.Family != v.family {
		v.family = r.Family
		fmt.Fprintf(v.out, "%s\n", v.paint("1", r.Family))
	}
	seen := "-"
	if r.Seen != nil {
		seen = map[bool]string{true: "seen", false: v.paint("31", "unseen")}[*r.Seen]
	}
	colour := map[string]string{attack.Contained: "32", attack.Breached: "1;31", attack.Inconclusive: "33", attack.NotApplicable: "2"}[r.Verdict]
	fmt.Fprintf(v.out, "  %-24s %s %s  %s\n", r.ID, v.paint(colour, fmt.Sprintf("%-14s", r.Verdict)), fmt.Sprintf("%-6s", seen), v.short(r))
}

// worked shows what became of a program that does normal work.
func (v *attackView) worked(b attack.Benign) {
	v.progress.phase("")
	if v.family != "benign" {
		v.family = "benign"
		fmt.Fprintf(v.out, "%s\n", v.paint("1", "programs that do normal work"))
	}
	word, colour := "not hindered", "32"
	switch {
	case b.NotRun:
		word, colour = "not run", "2"
	case b.Hindered:
		word, colour = "hindered", "1;31"
	}
	text := oneLine(b.Evidence)
	if n := 96; word == "not hindered" && len(text) > n {
		text = strings.ToValidUTF8(text[:n], "") + "..."
	}
	fmt.Fprintf(v.out, "  %-24s %s %-6s  %s\n", b.ID, v.paint(colour, fmt.Sprintf("%-14s", word)), "-", text)
}

// short is the evidence as a table has room for it: all of it where there is
// something to read.
func (v *attackView) short(r attack.Result) string {
	text := oneLine(r.Evidence)
	if n := 96; r.Verdict == attack.Contained && len(text) > n {
		text = strings.ToValidUTF8(text[:n], "") + "..."
	}
	return text
}

func (v *attackView) sum(s attack.Summary) {
	colour := "32"
	if s.Findings > 0 {
		colour = "1;31"
	} else if s.Inconclusive > 0 {
		colour = "33"
	}
	parts := []string{fmt.Sprintf("%d contained", s.Contained), v.paint(colour, fmt.Sprintf("%d breached", s.Breached)),
		fmt.Sprintf("%d inconclusive", s.Inconclusive), fmt.Sprintf("%d not applicable", s.NotApplicable)}
	if s.Unseen > 0 {
		parts = slices.Insert(parts, 2, fmt.Sprintf("%d unseen", s.Unseen))
	}
	fmt.Fprintf(v.out, "\n%d cases in %.0f s: %s\n", s.Cases, s.Seconds, strings.Join(parts, ", "))
	if s.Benign > 0 {
		colour := map[bool]string{true: "32", false: "1;31"}[s.FalseBlocks == 0]
		fmt.Fprintf(v.out, "%d programs that do normal work: %s\n", s.Benign, v.paint(colour, fmt.Sprintf("%d false blocks", s.FalseBlocks)))
	}
}

// again says how each finding, and what could not be judged, is seen once more.
func (v *attackView) again(o attackOptions, rep attack.Report) {
	var ids []string
	for _, r := range rep.Cases {
		if r.Finding() || r.Verdict == attack.Inconclusive {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) > 0 {
		o.only = slices.Compact(slices.Sorted(slices.Values(ids)))
		fmt.Fprintf(v.out, "again: %s\n", o.command())
	}
}

// paint colours text on a terminal only.
func (v *attackView) paint(code, text string) string {
	if v.out != v.env.Stdout || !isTerminal(v.env.Stdout) {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
