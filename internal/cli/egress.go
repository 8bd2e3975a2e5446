package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bermhq/berm/api"
)

const egressAbout = `
Without a flag it says what the sandbox may reach, what it has reached and what was
denied. With one it puts other rules in force at once: --allow and --policy replace
all rules, --none denies everything. Connections that the new rules do not allow are
cut. Who uses a sandbox may only narrow its rules; an operator may widen them, as
far as the token's ceiling goes. A sandbox that was made without egress has no link,
and none can be added.

  SB=$(berm create --allow preset:pip)
  berm exec $SB -- pip install humanize
  berm egress --none $SB
  berm egress --allow api.example.com:443 $SB
`

func egressVerb() verb {
	var wire wireOptions
	var none, asJSON bool
	fs := append(wire.flags()[:2], flags{ // learning starts with the sandbox
		{name: "none", help: "let it reach nothing", set: toggle(&none)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}...)
	return verb{
		name: "egress", summary: "show or change what a sandbox may reach", usage: "[FLAG...] SANDBOX", flags: func() flags { return fs }, about: egressAbout,
		run: ask("egress", fs, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			rules, err := wire.change(a, none)
			if err != nil {
				return err
			}
			id, err := a.sandbox(ctx, args[0])
			if err != nil {
				return err
			}
			var s api.EgressState
			if rules == nil {
				s, err = a.Egress(ctx, id)
			} else {
				s, err = a.ChangeEgress(ctx, id, rules)
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printed(s)
			case rules == nil:
				a.showEgress(s)
			}
			return nil
		}),
	}
}

// change is the document that flags put in force, or nil.
func (o *wireOptions) change(a *asker, none bool) (json.RawMessage, error) {
	if none && (len(o.allow) > 0 || o.policy != "") {
		return nil, &fault{"--none", "lets nothing through, so it cannot go with --allow or --policy", "leave one of them out"}
	}
	if none {
		return json.RawMessage(`[]`), nil
	}
	if err := o.check(a.Stdin, &api.Limits{}); err != nil {
		return nil, err
	}
	if p := o.document; p != nil {
		only := *p
		only.Egress = nil
		if b, _ := json.Marshal(only); string(b) != "{}" {
			return nil, &fault{"--policy " + shellLine([]string{o.policy}), "has more than egress, and nothing else can change while a sandbox lives", "a file with egress only"}
		}
		if p.Egress == nil && len(o.allow) == 0 {
			return nil, &fault{"--policy " + shellLine([]string{o.policy}), "has no egress", "berm help policy"}
		}
	}
	return o.egress()
}

func (env *Env) showEgress(s api.EgressState) {
	if !s.Link {
		fmt.Fprintln(env.Stdout, "there is no link: it reaches nothing, and none can be added")
		return
	}
	var rules []json.RawMessage
	json.Unmarshal(s.Egress, &rules) // shown as far as it goes
	fmt.Fprintln(env.Stdout, "egress:"+map[bool]string{true: " []"}[len(rules) == 0])
	for _, r := range rules {
		fmt.Fprintf(env.Stdout, "  - %s\n", shownName(string(r)))
	}
	fmt.Fprintln(env.Stdout)
	learn := ""
	if s.Learn {
		learn = "denies all, to see what is wanted"
	}
	env.facts([][2]string{
		{"learns", learn}, {"out", bytesText(s.EgressBytes)}, {"in", bytesText(s.IngressBytes)}, {"reached", strings.Join(s.Hosts, " ")},
		{"wanted", strings.Join(s.Wanted, " ")},
	})
	if len(s.Denied) > 0 {
		fmt.Fprintln(env.Stdout)
		t := newTable(env.Stdout, "DENIED", "TARGET", "REASON", "FIX")
		for _, d := range s.Denied {
			t.row(d.Kind, d.Target, d.Reason, d.Fix)
		}
		t.end()
	}
	env.tellFaults(s.Faults)
	if s.Truncated {
		env.note("the lists were cut at their bound; the events have all of it: berm events --type egress.denied")
	}
}
