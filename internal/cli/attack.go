package cli

import (
	"context"
	"fmt"
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

Exit code 0 if nothing was found, 1 on a finding, 2 if a case could not be
judged, 125 if nothing could be measured.

What it plants is called berm-canary-..., is worth nothing, never replaces a
file, and is removed again. Run nothing else in the same state directory
meanwhile.

  berm attack
  berm attack --only exhaustion,credentials
  berm attack --json | jq '.cases[] | select(.verdict != "contained")'
`

type attackOptions struct {
	only      []string
	isolation string
	json      bool
}

func (o *attackOptions) flags() flags {
	return flags{
		{name: "only", value: "NAME,...", help: "families or cases: " + strings.Join(attack.Families, ", "), set: func(s string) error {
			o.only = append(o.only, strings.Split(s, ",")...)
			return nil
		}},
		{name: "isolation", value: "KIND", help: "auto or gvisor (default: auto)", set: text(&o.isolation)},
		{name: "format", value: "table|json", help: "how to report (default: table)", set: func(s string) error {
			if s != "table" && s != "json" {
				return &fault{"--format " + s, "is not one of table, json", "berm attack --format json"}
			}
			o.json = s == "json"
			return nil
		}},
		{name: "json", help: "the same as --format json", set: toggle(&o.json)},
	}
}

func attackVerb() verb {
	return verb{
		name: "attack", own: true, summary: "try to get past the walls, and judge it from outside",
		usage: "[--only NAME,...] [--isolation KIND] [--format table|json]",
		flags: func() flags { return new(attackOptions).flags() }, about: attackAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			var o attackOptions
			rest, _, err := append(o.flags(), globalFlags(env)...).parse(args)
			switch i := o.isolation; {
			case err != nil:
			case len(rest) > 0:
				err = &fault{"attack", "takes no arguments", "berm attack --only " + rest[0]}
			case i != "" && i != api.IsolationAuto && i != api.IsolationGVisor:
				err = env.unknownIsolation(ctx, i)
			case env.Open == nil:
				err = &fault{"attack", "this build cannot start sandboxes", "berm version"}
			}
			if err != nil {
				return env.fail(err)
			}
			return env.attack(ctx, o)
		},
	}
}

func (env *Env) attack(ctx context.Context, o attackOptions) int {
	ctx, in := env.interruptible(ctx, func() {}, 0)
	defer in.stop()
	v := attackView{env: env, json: o.json}
	if isTerminal(env.Stderr) {
		v.progress.w = env.Stderr
	}
	v.progress.phase("preparing")
	rep, err := attack.Run(ctx, attack.Options{
		Open: func(ctx context.Context, link bool) (*attack.Session, error) {
			s, err := env.Open(ctx, OpenOptions{StateDir: env.StateDir, Isolation: o.isolation, Link: link, Progress: v.progress.update})
			if err != nil {
				return nil, err
			}
			return &attack.Session{Client: s.Client, Template: s.Template, StateDir: s.StateDir, Close: s.Close}, nil
		},
		Again:  func(ctx context.Context, only []string) *exec.Cmd { return env.attackAgain(ctx, o, only) },
		Target: strings.TrimSpace("berm " + env.Version.Version), Command: o.command(), Build: env.build(), Isolation: o.isolation, Only: o.only,
		Began: v.began, Ended: v.ended,
	})
	v.progress.phase("")
	if err != nil && context.Cause(ctx) == errInterrupted {
		env.note("attack: interrupted; what was planted is gone again")
		return exitKilled
	}
	if err != nil {
		return env.fail(err)
	}
	if o.json {
		if code := env.print(rep); code != exitOK {
			return code
		}
	} else {
		v.sum(rep.Summary)
	}
	switch {
	case rep.Summary.Findings > 0:
		return 1
	case rep.Summary.Inconclusive > 0:
		return 2
	}
	return exitOK
}

// attackAgain is this program, attacking with some of the cases.
func (env *Env) attackAgain(ctx context.Context, o attackOptions, only []string) *exec.Cmd {
	args := []string{"attack", "--json", "--only", strings.Join(only, ",")}
	if o.isolation != "" {
		args = append(args, "--isolation", o.isolation)
	}
	if env.StateDir != "" {
		args = append(args, "--state", env.StateDir)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = "berm"
	return cmd
}

// An attackView shows verdicts to a person as they come.
type attackView struct {
	env      *Env
	json     bool
	progress progress
	family   string
}

func (v *attackView) began(c attack.Case) { v.progress.phase("case " + c.ID) }

func (v *attackView) ended(r attack.Result) {
	v.progress.phase("")
	if v.json {
		return
	}
	if r.Family != v.family {
		v.family = r.Family
		fmt.Fprintf(v.env.Stdout, "%s\n", v.paint("1", r.Family))
	}
	seen := "-"
	if r.Seen != nil {
		seen = map[bool]string{true: "seen", false: v.paint("31", "unseen")}[*r.Seen]
	}
	colour := map[string]string{attack.Contained: "32", attack.Breached: "1;31", attack.Inconclusive: "33", attack.NotApplicable: "2"}[r.Verdict]
	fmt.Fprintf(v.env.Stdout, "  %-24s %s %s  %s\n", r.ID, v.paint(colour, fmt.Sprintf("%-14s", r.Verdict)), fmt.Sprintf("%-6s", seen), v.short(r))
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
	fmt.Fprintf(v.env.Stdout, "\n%d cases in %.0f s: %s\n", s.Cases, s.Seconds, strings.Join(parts, ", "))
}

// paint colours text on a terminal only.
func (v *attackView) paint(code, text string) string {
	if !isTerminal(v.env.Stdout) {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
