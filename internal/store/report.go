package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

// reportItems bounds each list of a report.
const reportItems = 10_000

// report composes what the log says of a run, a sandbox or a session. It reads
// the log, not the state: this is what can be proved.
func (l *log) report(ctx context.Context, tenant, subject string) (api.Report, error) {
	r := reporter{execs: map[string]int{}}
	none := refuse(api.CodeSandboxNotFound, "no run, sandbox or session of that name is in the audit log",
		"berm audit ls, for what there is; retention removes the oldest")
	needle, err := audit.Encode(subject)
	if err != nil || subject == "" || len(subject) > 1024 {
		return api.Report{}, none
	}
	f := newFilter(Query{Tenant: tenant})
	f.needles = append(f.needles, needle)
	select { // one at a time: whoever may ask must not keep the disk busy for all
	case l.asks <- struct{}{}:
		defer func() { <-l.asks }()
	case <-ctx.Done():
		return api.Report{}, ctx.Err()
	}
	err = l.scan(0, 1<<62, []string{subject}, func(uint64) {}, func(seq uint64, body []byte) (bool, error) {
		if seq%1024 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		if !f.may(body) {
			return true, nil
		}
		var e api.Event
		if err := json.Unmarshal(body, &e); err != nil {
			return false, err
		}
		if f.match(&e) && slices.Contains([]string{e.SandboxID, e.RunID, e.Session, e.Tags["run_id"], e.Tags["session"]}, subject) {
			r.add(&e)
		}
		return true, nil
	})
	if err != nil {
		return api.Report{}, err
	}
	if r.rep.Events == 0 {
		return api.Report{}, none
	}
	return r.done(), nil
}

type reporter struct {
	rep   api.Report
	execs map[string]int // place in Commands
}

// facts are the data of all events that a report knows.
type facts struct {
	ExecID    string             `json:"exec_id"`
	Args      []string           `json:"args"`
	Dir       string             `json:"cwd"`
	User      string             `json:"user"`
	Detached  bool               `json:"detached"`
	Timeout   float64            `json:"timeout_seconds"`
	ExitCode  int                `json:"exit_code"`
	Ending    string             `json:"ending"`
	CapsHit   []string           `json:"caps_hit"`
	Output    int64              `json:"output_bytes"`
	TimingsMS map[string]float64 `json:"timings_ms"`
	Path      string             `json:"path"`
	Bytes     int64              `json:"bytes"`
	SHA256    string             `json:"sha256"`
	Usage     api.Usage          `json:"usage"`
	Cap       string             `json:"cap"`
	Target    string             `json:"target"`
	Reason    string             `json:"reason"`
	Rule      string             `json:"rule"`
	Fix       string             `json:"fix"`
	Kind      string             `json:"kind"`
	Text      string             `json:"text"`
	Fault     string             `json:"fault"`
	Count     int                `json:"count"`
}

func (r *reporter) add(e *api.Event) {
	rep := &r.rep
	if rep.Events == 0 {
		rep.FirstSeq = e.Seq
	}
	rep.Events++
	rep.LastSeq = e.Seq
	var d facts
	_ = json.Unmarshal(e.Data, &d) // a field of another type than ours stays empty
	switch e.Type {
	case api.EventSandboxCreated:
		s := api.Sandbox{}
		_ = json.Unmarshal(e.Data, &s)
		s.SandboxID, s.ID, s.RunID, s.Session, s.Tenant, s.Tags, s.Metadata = e.SandboxID, e.SandboxID, e.RunID, e.Session, e.Tenant, e.Tags, e.Tags
		s.State, s.CreatedAt = "creating", e.Time
		rep.Sandbox = s
	case api.EventSandboxStarted, api.EventSandboxResumed:
		rep.Sandbox.State = "running"
	case api.EventSandboxPaused:
		rep.Sandbox.State = "paused"
	case api.EventSandboxEnded:
		rep.Sandbox.State, rep.Sandbox.Ending, rep.Sandbox.EndedAt = "ended", d.Ending, e.Time
		rep.Ending = d.Ending
		r.used(d.Usage)
		r.caps(d.CapsHit...)
	case api.EventExecStarted:
		if r.room(len(rep.Commands)) {
			r.execs[d.ExecID] = len(rep.Commands)
			rep.Commands = append(rep.Commands, api.Exec{ExecID: d.ExecID, SandboxID: e.SandboxID, Args: d.Args, Dir: d.Dir, User: d.User,
				Actor: e.Actor, State: api.ExecRunning, Detached: d.Detached, TimeoutSeconds: d.Timeout, StartedAt: e.Time})
		}
	case api.EventExecEnded:
		r.caps(d.CapsHit...)
		if i, ok := r.execs[d.ExecID]; ok {
			x := &rep.Commands[i]
			x.State, x.OutputBytes = api.ExecEnded, d.Output
			x.Result = &api.ExecResult{ExecID: d.ExecID, ExitCode: d.ExitCode, Ending: d.Ending, CapsHit: d.CapsHit, Reason: d.Reason, TimingsMS: d.TimingsMS}
		}
	case api.EventFileWritten, api.EventFileRead:
		list := &rep.FilesIn
		if e.Type == api.EventFileRead {
			list = &rep.FilesOut
		}
		if r.room(len(*list)) {
			*list = append(*list, api.FileMoved{Path: d.Path, Bytes: d.Bytes, SHA256: d.SHA256, Actor: e.Actor, Time: e.Time})
		}
	case api.EventCapHit:
		r.caps(d.Cap)
	default:
		r.wall(e, d)
	}
}

// wall takes what the walls said: hosts that were reached, and denials.
func (r *reporter) wall(e *api.Event, d facts) {
	rep := &r.rep
	kind, verb, _ := strings.Cut(e.Type, ".")
	switch {
	case denial(e.Type):
		wire := kind == "egress"
		one := api.Denial{Kind: kind, Target: d.Target, Rule: d.Rule, Reason: d.Reason, Fix: d.Fix}
		if wire { // as the wire itself tells them
			one = api.EgressData{Target: d.Target, Rule: d.Rule, Reason: d.Reason, Text: d.Text, Fix: d.Fix}.Denial()
		}
		same := func(x api.Denial) bool {
			return x.Kind == kind && x.Target == d.Target && (!wire || x.Reason == one.Reason)
		}
		if !slices.ContainsFunc(rep.Denied, same) && r.room(len(rep.Denied)) {
			rep.Denied = append(rep.Denied, one)
		}
	case kind == "egress" && verb == "allowed" && d.Kind != "dns" && d.Fault == "": // a name that was resolved is not reached yet
		if d.Target != "" && !slices.Contains(rep.Hosts, d.Target) && r.room(len(rep.Hosts)) {
			rep.Hosts = append(rep.Hosts, d.Target)
		}
	}
}

func (r *reporter) room(n int) bool {
	if n >= reportItems {
		r.rep.Truncated = true
	}
	return n < reportItems
}

func (r *reporter) caps(names ...string) {
	for _, c := range names {
		if c != "" && !slices.Contains(r.rep.CapsHit, c) && len(r.rep.CapsHit) < 64 {
			r.rep.CapsHit = append(r.rep.CapsHit, c)
		}
	}
}

// used adds up what several sandboxes of one run took: times and traffic as
// sums, peaks as the highest.
func (r *reporter) used(u api.Usage) {
	t := &r.rep.Usage
	t.CPUSeconds += u.CPUSeconds
	t.EgressBytes += u.EgressBytes
	t.IngressBytes += u.IngressBytes
	t.MemoryPeakBytes = max(t.MemoryPeakBytes, u.MemoryPeakBytes)
	t.PidsPeak = max(t.PidsPeak, u.PidsPeak)
	t.DiskPeakBytes = max(t.DiskPeakBytes, u.DiskPeakBytes)
}

// done makes empty lists of what is missing: clients count on lists.
func (r *reporter) done() api.Report {
	rep := r.rep
	empty := func(l *[]string) {
		if *l == nil {
			*l = []string{}
		}
	}
	empty(&rep.CapsHit)
	empty(&rep.Hosts)
	empty(&rep.Sandbox.HostFactsWeakening)
	if rep.Commands == nil {
		rep.Commands = []api.Exec{}
	}
	if rep.FilesIn == nil {
		rep.FilesIn = []api.FileMoved{}
	}
	if rep.FilesOut == nil {
		rep.FilesOut = []api.FileMoved{}
	}
	if rep.Denied == nil {
		rep.Denied = []api.Denial{}
	}
	return rep
}
