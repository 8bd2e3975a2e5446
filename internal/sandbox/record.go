package sandbox

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/image"
)

// recordVersion is of the record below. A reader takes its own and older ones.
const recordVersion = 1

// A record is what an engine must know of a sandbox to take it over from one
// before it. What was done in it is in the log.
type record struct {
	Version    int               `json:"version"`
	Handle     backend.Handle    `json:"handle"`
	Actor      string            `json:"actor"`
	Image      string            `json:"image"`
	Upper      []string          `json:"upper,omitempty"`
	Track      bool              `json:"track,omitempty"`
	Defaults   image.Defaults    `json:"defaults,omitzero"`
	Workspace  string            `json:"workspace,omitempty"`
	Created    time.Time         `json:"created"`
	Seq        uint64            `json:"seq"`
	Begun      bool              `json:"begun,omitempty"` // its start is recorded: its id may be known to somebody
	Env        map[string]string `json:"env,omitempty"`
	ExecMost   float64           `json:"exec_most,omitempty"`
	TTL        time.Duration     `json:"ttl"`
	Idle       time.Duration     `json:"idle"`
	Persistent bool              `json:"persistent,omitempty"`
	Bound      bool              `json:"bound,omitempty"`
	State      State             `json:"state"`
	Public     api.Sandbox       `json:"public"`
	EndedAt    time.Time         `json:"ended_at,omitzero"`
	Report     *api.EndReport    `json:"report,omitempty"`
	Key        string            `json:"key,omitempty"`
	Learn      bool              `json:"learn,omitempty"`
	Used       map[string]int    `json:"used,omitempty"`  // of egress rules, by their text
	Execs      []pastExec        `json:"execs,omitempty"` // the last ones of a sandbox that has ended, oldest first
}

// A pastExec is what is still told of an exec when its sandbox has ended.
type pastExec struct {
	Exec    api.Exec `json:"exec"`
	Request string   `json:"request"` // hash
}

// maxExecsBytes bounds what a record holds of them; the newest stay.
const maxExecsBytes = 16 << 10

// lastExecs are those that a record has room for; b.mu is held.
func (b *box) lastExecs() (out []pastExec) {
	room := maxExecsBytes
	for _, j := range slices.Backward(b.order) {
		x := pastExec{j.info, j.hash}
		raw, err := json.Marshal(x)
		if room -= len(raw); err != nil || room < 0 || len(out) == lastJobs {
			break
		}
		if j.info.State == api.ExecEnded {
			out = append(out, x)
		}
	}
	slices.Reverse(out)
	return out
}

// recall is the job of what lastExecs kept.
func (x pastExec) recall() *job {
	j := &job{hash: x.Request, kept: x.Exec.Kept, decided: make(chan struct{}), done: make(chan struct{}), info: x.Exec}
	j.killed, j.kill = context.WithCancel(context.Background())
	j.kill()
	close(j.decided)
	close(j.done)
	return j
}

// save puts b's record on disk.
func (e *Engine) save(b *box) error {
	if e.opt.Journal == nil {
		return nil
	}
	b.saving.Lock()
	defer b.saving.Unlock()
	b.mu.Lock()
	r := record{
		Version: recordVersion, Handle: b.handle, Actor: b.actor, Image: b.spec.Image, Upper: b.spec.Upper, Track: b.spec.Track, Defaults: b.defaults, Workspace: b.workspace, Created: b.created, Seq: b.seq, Begun: b.begun,
		Env: maps.Clone(b.env), ExecMost: b.most, TTL: b.ttl, Idle: b.idle, Persistent: b.persistent, Bound: b.bound,
		State: b.state, Public: b.public, EndedAt: b.endedAt, Report: b.report, Key: b.key,
	}
	if b.link != nil {
		r.Learn, r.Used = b.link.learn, b.link.used
	}
	if b.state.final() {
		r.Execs = b.lastExecs()
	}
	raw, err := json.Marshal(r)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return e.refused(b, e.opt.Journal.Save(b.id, raw))
}

// restore is the box of a record; what it needs of a backend is not in it yet.
func (r record) restore(id string) *box {
	b := newBox(id, r.Created)
	b.tenant, b.actor, b.session, b.handle, b.seq = r.Public.Tenant, r.Actor, r.Public.Session, r.Handle, r.Seq
	b.begun, b.defaults, b.workspace = r.Begun, r.Defaults, r.Workspace
	b.spec = backend.Spec{ID: id, Image: r.Image, Upper: r.Upper, Track: r.Track, Root: r.Defaults.Root, Hostname: hostname, Limits: r.Public.Limits}
	b.most, b.env, b.ttl, b.idle, b.persistent, b.bound = r.ExecMost, r.Env, r.TTL, r.Idle, r.Persistent, r.Bound
	b.public, b.endedAt, b.report, b.key = r.Public, r.EndedAt, r.Report, r.Key
	if b.public.Tags == nil {
		b.public.Tags = map[string]string{}
	}
	if b.public.TimingsMS == nil {
		b.public.TimingsMS = map[string]float64{}
	}
	if b.report != nil {
		b.ending = b.report.Ending
		full(b.report)
	}
	if r.Public.Egress != nil {
		b.spec.Link, b.link = true, &link{learn: r.Learn, used: r.Used}
		if b.link.used == nil {
			b.link.used = map[string]int{}
		}
	}
	for _, x := range r.Execs {
		if x.Exec.State == api.ExecEnded && x.Exec.Result != nil {
			b.remember(x.recall())
		}
	}
	return b
}
