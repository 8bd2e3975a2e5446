package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of what is kept of a link.
const (
	maxHeard = 500  // hosts, denials and wanted targets, each
	maxUsed  = 4096 // rules that are counted
)

// A link is the wire of a sandbox. Its document in force is Sandbox.Egress.
type link struct {
	learn  bool
	policy *policy.Egress    // the document in force, read; with b.mu, as what follows
	files  map[string]string // of its presets, to be written before anything runs
	used   map[string]int    // what rules have been used, by their text
	before egress.Summary    // as far as the log knows it of engines before this one
	sum    egress.Summary    // at the end
	capped []string          // reasons for which cap.hit was noted
	open   bool              // the broker knows it
}

// asked is the egress document of a request, made ready.
type asked struct {
	raw    json.RawMessage // with absolute times
	policy *policy.Egress
	names  []string // of its presets, in order
	preset map[string]policy.Preset
	// trust are the certificates that presets bring into a root that is not the
	// host's own, PEM; "": none.
	trust string
}

// Where those are, and the variables that say so to what package managers are
// made of. A registry in the house has a certificate that only the host knows.
const (
	trustFile = api.GuestHome + "/.config/berm/ca-bundle.pem"
	presetCA  = api.GuestHome + "/.config/berm/ca.pem" // that a preset has beside them
)

var trustVars = []string{"SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
	"npm_config_cafile"} // goes before a cafile of .npmrc, which may be one that only the host has

// links settles what link a request gets: nil for none.
func (e *Engine) links(c Caller, req *api.CreateRequest) (*asked, error) {
	raw, v := policy.Asked(*req, c.Default)
	if !v.Allow {
		return nil, v.Err()
	}
	req.Egress = raw
	if raw == nil {
		return nil, nil
	}
	if e.opt.Egress == nil {
		return nil, &api.Error{Code: api.CodeEgressUnavailable, Message: "egress: nothing here can decide about a link, so a sandbox has none", Hint: api.Hint(api.CodeEgressUnavailable)}
	}
	a, err := e.readEgress(raw, time.Now())
	if err != nil {
		return nil, err
	}
	return a, e.withinCeiling(c, a.policy)
}

// readEgress reads a document. Times that count from now become the ones they
// mean, so that the same text means the same later. A preset is asked for once.
func (e *Engine) readEgress(raw json.RawMessage, now time.Time) (*asked, error) {
	a := &asked{preset: map[string]policy.Preset{}}
	var find func(string) (policy.Preset, error)
	if e.opt.Presets != nil {
		find = func(name string) (policy.Preset, error) {
			if p, ok := a.preset[name]; ok {
				return p, nil
			}
			p, err := e.opt.Presets(name)
			if err == nil {
				a.preset[name], a.names = p, append(a.names, name)
			}
			return p, err
		}
	}
	if _, err := policy.ParseEgress(raw, now, find); err != nil {
		return nil, err
	}
	var rules []json.RawMessage
	if err := json.Unmarshal(raw, &rules); err != nil {
		return nil, &api.Error{Code: api.CodePolicyInvalid, Message: "egress: an array of rules is expected", Hint: api.Hint(api.CodePolicyInvalid)}
	}
	for i, rule := range rules {
		var fields map[string]json.RawMessage
		if json.Unmarshal(rule, &fields) != nil || !policy.Present(fields["expires"]) {
			continue
		}
		one, err := policy.ParseEgress(slices.Concat(json.RawMessage("["), rule, json.RawMessage("]")), now, find)
		if err != nil {
			return nil, err
		}
		if len(one.Rules) == 0 || one.Rules[0].Expires.IsZero() {
			return nil, &api.Error{Code: api.CodePolicyInvalid, Message: fmt.Sprintf("egress: rule %d: expires says no time", i+1), Hint: api.Hint(api.CodePolicyInvalid)}
		}
		fields["expires"], _ = json.Marshal(one.Rules[0].Expires.UTC().Format(time.RFC3339Nano))
		if rules[i], err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	if rules == nil {
		rules = []json.RawMessage{}
	}
	var err error
	if a.raw, err = json.Marshal(rules); err != nil {
		return nil, err
	}
	a.policy, err = policy.ParseEgress(a.raw, now, find)
	return a, err
}

// withinCeiling holds a document against the most that the caller's token may
// give.
func (e *Engine) withinCeiling(c Caller, p *policy.Egress) error {
	if c.Ceiling == nil || !policy.Present(c.Ceiling.Egress) {
		return nil
	}
	most, err := e.readEgress(c.Ceiling.Egress, time.Now())
	if err != nil {
		return fmt.Errorf("the ceiling of the token: %w", err)
	}
	return policy.EgressCeiling(p, most.policy).Err()
}

// environment is the environment of the presets and, above it, the user's own.
// Both are as of who reads them.
func (a *asked) environment(own map[string]string, who person) map[string]string {
	if a == nil || len(a.names) == 0 {
		return own
	}
	env := map[string]string{}
	for _, name := range a.names {
		for k, v := range a.preset[name].Env {
			env[k] = who.at(v)
		}
	}
	if a.trust != "" {
		for _, k := range trustVars {
			env[k] = who.at(trustFile)
		}
	}
	if who.uid == 0 {
		delete(env, "APT_CONFIG") // root's apt writes where it belongs, and has the root's own sources
	}
	maps.Copy(env, own)
	return env
}

// at is what a preset says, with another home in the place of the agent's.
func (a person) at(s string) string {
	if a.home == api.GuestHome {
		return s
	}
	return strings.ReplaceAll(s, api.GuestHome+"/", strings.TrimSuffix(a.home, "/")+"/")
}

// newLink is the link of a sandbox that is being made.
func (a *asked) newLink(learn bool, who person) *link {
	if a == nil {
		return nil
	}
	l := &link{learn: learn, policy: a.policy, files: map[string]string{}, used: map[string]int{}}
	for _, name := range a.names {
		for path, text := range a.preset[name].Files {
			l.files[who.at(path)] = who.at(text)
		}
	}
	if a.trust != "" && len(a.names) > 0 {
		l.files[who.at(trustFile)] = a.trust + "\n" + l.files[who.at(presetCA)]
	}
	return l
}

// wire makes b known to the broker, before its instance is started or reached.
func (e *Engine) wire(b *box) error {
	if b.link == nil {
		return nil
	}
	if e.opt.Egress == nil {
		return &api.Error{Code: api.CodeEgressUnavailable, Message: "egress: nothing here can decide about a link", Hint: api.Hint(api.CodeEgressUnavailable)}
	}
	b.mu.Lock()
	l := egress.Link{
		Policy: b.link.policy, Learn: b.link.learn, Used: maps.Clone(b.link.used),
		Sink: func(ev egress.Event) { e.decidedOn(b, ev) },
		Use:  func(rule string, uses int) error { return e.spend(b, rule, uses) },
	}
	b.mu.Unlock()
	if err := e.opt.Egress.Open(b.id, l); err != nil {
		return hostFailure("open the link", err)
	}
	b.mu.Lock()
	b.link.open = true
	b.mu.Unlock()
	return nil
}

// unwire cuts what b has open and keeps what is to be told of it. Twice is fine.
func (e *Engine) unwire(b *box) {
	if b.link == nil {
		return
	}
	b.mu.Lock()
	was := b.link.open
	b.link.open = false
	b.mu.Unlock()
	if !was {
		return
	}
	sum := e.opt.Egress.Close(b.id) // what it has to say comes through decidedOn meanwhile
	b.mu.Lock()
	b.link.sum = sum
	b.mu.Unlock()
}

// carried is what went through b's link so far.
func (e *Engine) carried(b *box) egress.Summary {
	if b.link == nil {
		return egress.Summary{}
	}
	b.mu.Lock()
	open, sum, before := b.link.open, b.link.sum, b.link.before
	b.mu.Unlock()
	if open {
		if sum = e.opt.Egress.Summary(b.id); e.closedMeanwhile(b) {
			b.mu.Lock()
			sum = b.link.sum
			b.mu.Unlock()
		}
	}
	return join(before, sum)
}

// closedMeanwhile says that a summary may have been asked for too late.
func (e *Engine) closedMeanwhile(b *box) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.link.open
}

// join is both together, within the bounds.
func join(a, b egress.Summary) egress.Summary {
	out := egress.Summary{OutBytes: a.OutBytes + b.OutBytes, InBytes: a.InBytes + b.InBytes, Truncated: a.Truncated || b.Truncated, DeniedTruncated: a.DeniedTruncated || b.DeniedTruncated}
	text := func(s string) string { return s }
	out.Hosts = joinLists(&out.Truncated, text, a.Hosts, b.Hosts)
	out.Denied = joinLists(&out.DeniedTruncated, func(d api.Denial) api.Denial { d.Fix = ""; return d }, a.Denied, b.Denied)
	out.Wanted = joinLists(&out.Truncated, text, a.Wanted, b.Wanted)
	if faults := joinLists(&out.Truncated, text, a.Faults, b.Faults); len(faults) > 0 {
		out.Faults = faults
	}
	out.Truncated = out.Truncated || out.DeniedTruncated
	return out
}

// joinLists is all lists in one, each thing once: by is what tells two apart.
func joinLists[T any, K comparable](cut *bool, by func(T) K, lists ...[]T) []T {
	out, seen := []T{}, map[K]bool{}
	for _, l := range lists {
		for _, x := range l {
			switch k := by(x); {
			case seen[k]:
			case len(out) == maxHeard:
				*cut = true
			default:
				seen[k] = true
				out = append(out, x)
			}
		}
	}
	return out
}

// endReport is what remains of b, or what there is to say so far; b.ending is
// told by whoever ends it. Without b.mu.
func (e *Engine) endReport(b *box) *api.EndReport {
	sum, u := e.carried(b), b.figures()
	u.EgressBytes, u.IngressBytes = sum.OutBytes, sum.InBytes
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &api.EndReport{SandboxID: b.id, CapsHit: b.caps.list(), Usage: u, TimingsMS: maps.Clone(b.public.TimingsMS), Hosts: sum.Hosts, Denied: sum.Denied, DeniedTruncated: sum.DeniedTruncated, Faults: sum.Faults, Wanted: sum.Wanted}
	full(r)
	return r
}

// full gives a report its empty lists: clients count on lists.
func full(r *api.EndReport) {
	if r.CapsHit == nil {
		r.CapsHit = []string{}
	}
	if r.Hosts == nil {
		r.Hosts = []string{}
	}
	if r.Denied == nil {
		r.Denied = []api.Denial{}
	}
}

// decidedOn records what the broker decided about something that b wanted.
func (e *Engine) decidedOn(b *box, ev egress.Event) {
	typ := api.EventEgressDenied
	if ev.Allowed {
		typ = api.EventEgressAllowed
	}
	e.note(b, b.event(system, typ, ev.Data))
	if ev.Allowed || !capReason(ev.Data.Reason) {
		return
	}
	b.mu.Lock()
	b.caps.add(api.CapEgress)
	told := slices.Contains(b.link.capped, ev.Data.Reason)
	if !told {
		b.link.capped = append(b.link.capped, ev.Data.Reason)
	}
	b.mu.Unlock()
	if !told {
		e.note(b, b.event(system, api.EventCapHit, capData{Cap: api.CapEgress, Reason: ev.Data.Reason}))
	}
}

// capReason says whether a denial is a cap that was reached, and no wall.
func capReason(reason string) bool {
	return slices.Contains([]string{policy.DenyRate, policy.DenyBytes, policy.DenyBusy, policy.DenyUsed}, reason)
}

// spend puts on disk what a rule has been used, before it is: a daemon that
// dies in between has used it once too often, never once too little.
func (e *Engine) spend(b *box, rule string, uses int) error {
	b.mu.Lock()
	if _, ok := b.link.used[rule]; !ok && len(b.link.used) >= maxUsed {
		b.mu.Unlock()
		return errors.New("more rules were used than can be counted")
	}
	b.link.used[rule] = max(b.link.used[rule], uses)
	b.mu.Unlock()
	return e.save(b)
}

// rewire is the link of a record. Its document was accepted before, so times
// in it may have passed; one that can no longer be read denies all.
func (e *Engine) rewire(b *box) {
	if b.link == nil {
		return
	}
	a, err := e.readEgress(b.public.Egress, b.created)
	if err != nil { // a time may be too far from then
		a, err = e.readEgress(b.public.Egress, time.Now())
	}
	if err != nil {
		e.opt.Log.Error("egress document of a sandbox cannot be read any more; all is denied", "sandbox_id", b.id, "error", err)
		a = &asked{policy: &policy.Egress{}}
	}
	b.link.policy = a.policy
	if err := e.wire(b); err != nil { // its gateway finds no broker, and nothing gets through
		e.opt.Log.Error("link of a sandbox stays cut", "sandbox_id", b.id, "error", err)
	}
}

// heardOf is what the log says of a link before this engine.
func (l *link) heardOf(d api.EgressData, allowed bool) {
	one := egress.Summary{OutBytes: d.EgressBytes, InBytes: d.IngressBytes}
	switch {
	case !allowed:
		one.Denied = []api.Denial{d.Denial()}
	case d.Fault != "":
		one.Faults = []string{d.FaultText()}
	case d.Kind != "dns":
		one.Hosts = []string{d.Target}
	}
	l.before = join(l.before, one)
}

// same says whether two documents are one text.
func same(a, b json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

// presetFiles are the files to write into a new guest, in order.
func (b *box) presetFiles() (names []string, text map[string]string) {
	if b.link == nil {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(b.link.files)), b.link.files
}

// furnish makes the guest of b ready for its template's defaults, and writes what its presets have to say into it, before
// anything runs there. Only greet calls it.
func (e *Engine) furnish(b *box) error {
	if err := e.settle(b); err != nil {
		return err
	}
	who := defaultPerson(b.defaults)
	names, text := b.presetFiles()
	for _, name := range names {
		ctx, cancel := e.listing()
		err := b.guest.WriteFile(ctx, name, 0o644, who.uid, who.gid, strings.NewReader(text[name]))
		cancel()
		if err != nil {
			return &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("egress: the file %s of a preset could not be written: %s", clip(name, 200), clip(err.Error(), 300)), Hint: "give the sandbox more disk, or leave the preset out"}
		}
	}
	return nil
}
