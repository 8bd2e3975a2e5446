package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
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
		{name: "allow", value: "TARGET", help: "let it reach HOST[:PORT], '*.SUFFIX[:PORT]', CIDR[:PORT], preset:NAME or what a rule as JSON allows, and nothing else (repeat)", set: more(&o.allow)},
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
	for _, a := range o.allow {
		if _, err := rule(a); err != nil {
			return err
		}
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
		r, err := rule(a)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
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

// rule is one --allow: a target, or a rule that allows, as JSON.
func rule(allow string) (any, error) {
	if !strings.HasPrefix(allow, "{") {
		return api.EgressRule{Allow: allow}, nil
	}
	what, try := "--allow "+shellLine([]string{allow}), `--allow '{"allow":"example.test:443","sni":"any"}'`
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(allow), &keys); err != nil {
		return nil, &fault{what, "begins as a rule and is no JSON object", try}
	}
	if _, ok := keys["allow"]; !ok {
		return nil, &fault{what, "is a rule that does not allow", "--policy FILE, which may also deny"}
	}
	return json.RawMessage(allow), nil // the server judges what it says
}

// mostDenied bounds what is said after a run.
const mostDenied = 5

// tellDenied says what the wire refused, and what would allow it. cut says that
// there was more than the list holds.
func (env *Env) tellDenied(denied []api.Denial, cut bool) {
	for i, d := range denied {
		if i == mostDenied {
			if cut {
				env.note("denied: and %d more, and others after that; --json has the first %d", len(denied)-i, len(denied))
			} else {
				env.note("denied: and %d more; --json has them all", len(denied)-i)
			}
			return
		}
		env.note("denied: %s: %s%s", shownName(d.Target), shownName(d.Reason), mind(d.Fix))
		if d.Fix != "" {
			fmt.Fprintf(env.Stderr, "try: %s\n", oneLine(allowing(d.Fix)))
		}
	}
}

// tellFaults says what was allowed and could not be had.
func (env *Env) tellFaults(faults []string) {
	for i, f := range faults {
		if i == mostDenied {
			env.note("allowed, but not to be had: and %d more; --json has them all", len(faults)-i)
			return
		}
		target, why, _ := strings.Cut(f, ": ")
		env.note("%s: allowed, but %s", shownName(target), shownName(why))
	}
}

// allowing is a fix as it stands on a command line.
func allowing(fix string) string {
	if !strings.HasPrefix(fix, "{") && (strings.HasPrefix(fix, "-") || strings.Contains(fix, " ")) {
		return shownName(fix)
	}
	return "--allow " + shellLine([]string{shownName(fix)})
}

// mind says where a fix allows more than one may think.
func mind(fix string) string {
	target := fix
	if strings.HasPrefix(fix, "{") {
		var r api.EgressRule
		json.Unmarshal([]byte(fix), &r) // what is none has no target
		target = r.Allow
	}
	host, port := splitTarget(target)
	a, err := netip.ParseAddr(host)
	switch {
	case host == "":
	case err != nil && port == "":
		return "; without :PORT the rule is for every port, and --learn says which one it wants"
	case err == nil && inward(a) != "":
		return "; it is " + inward(a) + ", so allow it only if you mean it"
	}
	return ""
}

// splitTarget is the host and the port of a target that is no range.
func splitTarget(target string) (host, port string) {
	if h, p, err := net.SplitHostPort(target); err == nil {
		return h, p
	}
	return strings.Trim(target, "[]"), ""
}

// inwards are addresses at which a program that is not trusted has least to do.
// This only warns; the policy knows more of them.
var inwards = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (metadata)"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a metadata service"},
	{netip.MustParsePrefix("100.100.100.200/32"), "a metadata service"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "a metadata service"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a metadata service"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/96"), "another address in IPv6"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "another address in IPv6"},
	{netip.MustParsePrefix("64:ff9b::/32"), "another address in IPv6"},
	{netip.MustParsePrefix("2002::/16"), "another address in IPv6"},
	{netip.MustParsePrefix("2001::/32"), "another address in IPv6"},
	{netip.MustParsePrefix("0.0.0.0/8"), "not public"},
	{netip.MustParsePrefix("224.0.0.0/3"), "not public"},
	{netip.MustParsePrefix("ff00::/8"), "not public"},
}

// inward says what an address is that is not public, "" for others.
func inward(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	for _, r := range inwards {
		if r.prefix.Contains(a) {
			return r.what
		}
	}
	return ""
}

// tellWanted prints the document that would have let through what was tried, but
// for what nobody should allow without a thought.
func (env *Env) tellWanted(wanted []string) {
	if len(wanted) == 0 {
		fmt.Fprint(env.Stderr, "# it tried to reach nothing: it needs no --allow\n")
		return
	}
	var rules, notes strings.Builder
	for _, t := range wanted {
		host, _ := splitTarget(t)
		if a, err := netip.ParseAddr(host); err == nil && inward(a) != "" {
			fmt.Fprintf(&notes, "  # %s is %s: allow it by hand only if you mean it\n", shownName(t), inward(a))
			continue
		}
		fmt.Fprintf(&rules, "  - allow: %s\n", yamlText(t))
	}
	none := ""
	if rules.Len() == 0 {
		none = " []"
	}
	fmt.Fprintf(env.Stderr, "# what it tried to reach; as a file it is for --policy\negress:%s\n%s%s", none, rules.String(), notes.String())
}

// yamlText is a string as YAML and JSON both read it, harmless for a terminal.
func yamlText(s string) string {
	b, _ := json.Marshal(oneLine(s)) // a string always is
	return string(b)
}

// ofWire says whether a denial is the network's, not one of files.
func ofWire(d api.Denial) bool { return d.Kind != "artifact" }
