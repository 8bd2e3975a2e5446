package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

// Egress says what a sandbox may reach, and what it has; of one that has ended,
// too.
func (e *Engine) Egress(ctx context.Context, id string) (api.EgressState, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.EgressState{}, err
	}
	return e.egressState(b), nil
}

func (e *Engine) egressState(b *box) api.EgressState {
	s := api.EgressState{Hosts: []string{}, Denied: []api.Denial{}}
	if b.link == nil {
		return s
	}
	sum := e.carried(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Link, s.Learn, s.Egress = true, b.link.learn, b.public.Egress
	if r := b.report; r != nil { // it outlives what was summed up
		s.EgressBytes, s.IngressBytes, s.Hosts, s.Denied, s.Wanted = r.Usage.EgressBytes, r.Usage.IngressBytes, r.Hosts, r.Denied, r.Wanted
		s.Faults, s.Truncated = r.Faults, sum.Truncated
		return s
	}
	s.EgressBytes, s.IngressBytes, s.Hosts, s.Denied, s.Wanted, s.Truncated = sum.OutBytes, sum.InBytes, sum.Hosts, sum.Denied, sum.Wanted, sum.Truncated
	s.Faults = sum.Faults
	return s
}

// policyData is what policy.changed says.
type policyData struct {
	Old    json.RawMessage `json:"old"`
	New    json.RawMessage `json:"new"`
	Failed string          `json:"failed,omitempty"` // the change before this one had no effect
}

// SetEgress puts another document in force, in a paused sandbox too. Its user
// may only narrow it; an operator may give what their token's ceiling allows.
func (e *Engine) SetEgress(ctx context.Context, id string, raw json.RawMessage) (api.EgressState, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.EgressState{}, err
	}
	caller := CallerOf(ctx)
	b.life.Lock()
	defer b.life.Unlock()
	if err := b.alive(); err != nil {
		return api.EgressState{}, err
	}
	if b.link == nil {
		return api.EgressState{}, &api.Error{Code: api.CodeEgressNoLink, Message: fmt.Sprintf("sandbox %s was created without egress: it has no link, and none can be added", b.id), Hint: api.Hint(api.CodeEgressNoLink)}
	}
	a, err := e.change(b, caller, raw)
	if err != nil {
		return api.EgressState{}, err
	}
	b.mu.Lock()
	was, before := b.public.Egress, b.link.policy
	b.mu.Unlock()
	if same(was, a.raw) {
		return e.egressState(b), nil
	}
	if err := e.decided(ctx, b, b.event(caller.Actor, api.EventPolicyChanged, policyData{Old: was, New: a.raw})); err != nil {
		return api.EgressState{}, err
	}
	set := func(raw json.RawMessage, p *policy.Egress) {
		b.mu.Lock()
		b.public.Egress, b.link.policy = raw, p
		b.mu.Unlock()
	}
	set(a.raw, a.policy)
	err = e.save(b)
	if err == nil {
		if err = e.opt.Egress.Change(b.id, a.policy); err == nil {
			return e.egressState(b), nil
		}
	}
	set(was, before)
	e.save(b)
	e.happened(b, b.event(system, api.EventPolicyChanged, policyData{Old: a.raw, New: was, Failed: clip(err.Error(), 512)}))
	return api.EgressState{}, hostFailure("change egress", err)
}

// change reads a new document for b and says whether caller may put it in force;
// b.life is held.
func (e *Engine) change(b *box, c Caller, raw json.RawMessage) (*asked, error) {
	if !policy.Present(raw) {
		return nil, &api.Error{Code: api.CodePolicyInvalid, Message: "egress: an array of rules is expected", Hint: "[] denies all"}
	}
	a, err := e.readEgress(raw, time.Now())
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	now, open := b.link.policy, b.link.open
	b.mu.Unlock()
	switch {
	case !open:
		return nil, &api.Error{Code: api.CodeEgressUnavailable, Message: "egress: the link of this sandbox is cut, and nothing gets through it", Hint: "create another sandbox"}
	case b.link.learn && len(a.policy.Rules) > 0:
		return nil, &api.Error{Code: api.CodePolicyInvalid, Message: "egress: this sandbox learns, so it denies all", Hint: "create another without learn"}
	case api.Rank(c.Role) >= api.Rank(api.RoleOperator):
		return a, e.withinCeiling(c, a.policy)
	}
	return a, narrower(now, a.policy)
}

// narrower refuses a document that allows more than the one in force.
func narrower(now, next *policy.Egress) error {
	d := now.Covers(next)
	if d.Allow {
		return renewed(now, next)
	}
	rule := ""
	for i := range next.Rules { // the first without which it would do
		if !now.Covers(&policy.Egress{Rules: next.Rules[:i+1]}).Allow {
			rule = next.Rules[i].Text
			break
		}
	}
	return wider(rule, d.Text)
}

// renewed refuses rules that would let what was used up be used again: counts
// go with a rule's text, and a new text begins at nothing.
func renewed(now, next *policy.Egress) error {
	counted := func(r policy.EgressRule) bool { return r.Allow && (r.Uses > 0 || r.Bytes > 0) }
	if !slices.ContainsFunc(now.Rules, counted) {
		return nil
	}
	for _, r := range next.Rules {
		if r.Allow && !slices.ContainsFunc(now.Rules, func(old policy.EgressRule) bool { return old.Text == r.Text }) {
			return wider(r.Text, "what the rules in force have used would not count for it")
		}
	}
	return nil
}

func wider(rule, why string) error {
	err := &api.Error{Code: api.CodePolicyWider, Message: "egress: this allows more than what is in force, and only an operator widens", Hint: api.Hint(api.CodePolicyWider)}
	if why != "" {
		err.Message += ": " + clip(why, 300)
	}
	if rule != "" {
		err.Hint = fmt.Sprintf("leave out the rule %.200q, which is wider, or use an operator's token", rule)
	}
	return err
}
