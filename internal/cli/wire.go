package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// wireOptions are the flags that say what a sandbox may reach.
type wireOptions struct {
	allow  []string
	policy string // file
	learn  bool

	document *api.Policy // of the file
}

func (o *wireOptions) flags() flags {
	return flags{
		{name: "allow", value: "TARGET", help: "let it reach HOST[:PORT], '*.SUFFIX[:PORT]', CIDR[:PORT] or preset:NAME, and nothing else (repeat)", set: more(&o.allow)},
		{name: "policy", value: "FILE", help: "a document of what it may reach and use, YAML or JSON; - is standard input; see berm help policy", set: text(&o.policy)},
		{name: "learn", help: "let it reach nothing, and print the policy that would have let it through", set: toggle(&o.learn)},
	}
}

// check reads the document and refuses what cannot go together. limits gets
// what no flag has set.
func (o *wireOptions) check(stdin io.Reader, limits *api.Limits) (err error) {
	if o.learn && len(o.allow) > 0 {
		return &fault{"--learn", "lets nothing through, to see all that is wanted, so it cannot go with --allow", "leave one of them out"}
	}
	if o.policy == "" {
		return nil
	}
	if o.document, err = readPolicy(o.policy, stdin); err != nil {
		return err
	}
	if o.learn && o.document.Egress != nil {
		return &fault{"--learn", "lets nothing through, to see all that is wanted, so it cannot go with a --policy that has egress rules", "leave one of them out"}
	}
	of := o.document.Limits
	for _, n := range []struct{ to, from *int64 }{
		{&limits.MemoryBytes, &of.MemoryBytes}, {&limits.Pids, &of.Pids}, {&limits.DiskBytes, &of.DiskBytes}, {&limits.OutputBytes, &of.OutputBytes},
	} {
		if *n.to == 0 {
			*n.to = *n.from
		}
	}
	for _, n := range []struct{ to, from *float64 }{{&limits.TimeoutSeconds, &of.TimeoutSeconds}, {&limits.CPUs, &of.CPUs}} {
		if *n.to == 0 {
			*n.to = *n.from
		}
	}
	return nil
}

// asked says whether there is to be a link.
func (o *wireOptions) asked() bool {
	return len(o.allow) > 0 || o.learn || o.document != nil && o.document.Egress != nil
}

// egress is the document for a request: the rules of --allow, then those of the
// file. nil: there is to be no link at all.
func (o *wireOptions) egress() (json.RawMessage, error) {
	var doc []any
	if o.document != nil && o.document.Egress != nil {
		if err := json.Unmarshal(o.document.Egress, &doc); err != nil {
			return nil, &fault{"--policy " + shellLine([]string{o.policy}), "egress is not a list of rules", "berm help policy"}
		}
	} else if !o.asked() {
		return nil, nil
	}
	all := []any{}
	for _, a := range o.allow {
		all = append(all, api.EgressRule{Allow: a})
	}
	return json.Marshal(append(all, doc...))
}

// put fills in a request, after check.
func (o *wireOptions) put(req *api.CreateRequest) (err error) {
	if p := o.document; p != nil {
		if req.MinIsolation == "" {
			req.MinIsolation = p.MinIsolation
		}
		if req.TTLSeconds == 0 {
			req.TTLSeconds = p.TTLSeconds
		}
		if req.IdleTimeoutSeconds == 0 && !req.Persistent {
			req.IdleTimeoutSeconds = p.IdleTimeoutSeconds
		}
	}
	req.Learn = o.learn
	req.Egress, err = o.egress()
	return err
}

// presets lists the presets that a document names, each once.
func presets(egress json.RawMessage) (names []string) {
	var rules []struct {
		Allow any `json:"allow"`
		Deny  any `json:"deny"`
	}
	json.Unmarshal(egress, &rules) // one that is none is refused by the server
	for _, r := range rules {
		for _, v := range []any{r.Allow, r.Deny} {
			s, _ := v.(string)
			if name, ok := strings.CutPrefix(s, "preset:"); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// most bounds what is said after a run.
const mostDenied = 5

// tellDenied says what the wire refused, and what would allow it.
func (env *Env) tellDenied(denied []api.Denial) {
	for i, d := range denied {
		if i == mostDenied {
			env.note("denied: and %d more; --json has them all", len(denied)-i)
			return
		}
		env.note("denied: %s: %s", shownName(d.Target), shownName(d.Reason))
		if d.Fix != "" {
			fmt.Fprintf(env.Stderr, "try: %s\n", oneLine(allowing(d.Fix)))
		}
	}
}

// allowing is a fix as it stands on a command line.
func allowing(fix string) string {
	if strings.HasPrefix(fix, "-") || strings.ContainsAny(fix, " {") {
		return shownName(fix)
	}
	return "--allow " + shellLine([]string{shownName(fix)})
}

// tellWanted prints the document that would have let through what was tried.
func (env *Env) tellWanted(wanted []string) {
	if len(wanted) == 0 {
		fmt.Fprint(env.Stderr, "# it tried to reach nothing: it needs no --allow\n")
		return
	}
	fmt.Fprint(env.Stderr, "# what it tried to reach; as a file it is for --policy\negress:\n")
	for _, t := range wanted {
		fmt.Fprintf(env.Stderr, "  - allow: %s\n", yamlText(t))
	}
}

// yamlText is a string as YAML and JSON both read it, harmless for a terminal.
func yamlText(s string) string {
	b, _ := json.Marshal(oneLine(s)) // a string always is
	return string(b)
}

// ofWire says whether a denial is the network's, not one of files.
func ofWire(d api.Denial) bool { return d.Kind != "artifact" }
