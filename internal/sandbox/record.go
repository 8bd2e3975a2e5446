package sandbox

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
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
}

// save puts b's record on disk.
func (e *Engine) save(b *box) error {
	if e.opt.Journal == nil {
		return nil
	}
	b.mu.Lock()
	r := record{
		Version: recordVersion, Handle: b.handle, Actor: b.actor, Image: b.spec.Image, Created: b.created, Seq: b.seq, Begun: b.begun,
		Env: maps.Clone(b.env), ExecMost: b.most, TTL: b.ttl, Idle: b.idle, Persistent: b.persistent, Bound: b.bound,
		State: b.state, Public: b.public, EndedAt: b.endedAt, Report: b.report, Key: b.key,
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
	b.begun = r.Begun
	b.spec = backend.Spec{ID: id, Image: r.Image, Hostname: hostname, Limits: r.Public.Limits}
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
	}
	return b
}
