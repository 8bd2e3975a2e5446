package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/bermhq/berm/api"
)

// system is the actor of what nobody asked for.
const system = "system"

// maxOwed is how many events of one sandbox wait for a journal that failed.
const maxOwed = 256

// event is one line of the audit log about b.
func (b *box) event(actor, typ string, data any) api.Event {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(err) // our own types
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return api.Event{Type: typ, Tenant: b.tenant, Actor: actor, SandboxID: b.id, RunID: b.public.RunID, Session: b.session,
		Tags: maps.Clone(b.public.Tags), Data: raw}
}

// decided puts events on disk before what they decide happens. An error
// refuses that.
func (e *Engine) decided(ctx context.Context, b *box, events ...api.Event) error {
	if e.opt.Journal == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := e.opt.Journal.Append(ctx, events...)
	return e.refused(b, err)
}

// happened records what nobody can undo. What the journal does not take is kept
// for later, up to a bound, and the error says that it is not on disk yet.
func (e *Engine) happened(b *box, events ...api.Event) error {
	if e.opt.Journal == nil {
		return nil
	}
	b.rec.Lock()
	all := append(b.owed, events...)
	b.owed = nil
	b.rec.Unlock() // not held while the journal is slow: what happens at once goes to disk at once
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.Record)
	defer cancel()
	err := e.opt.Journal.Append(ctx, all...)
	if err != nil {
		b.rec.Lock()
		all = append(all, b.owed...)
		b.owed = all[max(0, len(all)-maxOwed):]
		b.rec.Unlock()
		e.opt.Log.Error("what happened could not be recorded yet", "sandbox_id", b.id, "events", len(all), "error", err)
	}
	return e.refused(b, err)
}

// note records what was decided before.
func (e *Engine) note(b *box, ev api.Event) {
	if e.opt.Journal == nil {
		return
	}
	if err := e.opt.Journal.Note(ev); err != nil {
		e.refused(b, err)
		e.opt.Log.Warn("event not noted", "sandbox_id", b.id, "type", ev.Type, "error", err)
	}
}

// refused turns a journal's error into the caller's. A sandbox over its event
// budget ends.
func (e *Engine) refused(b *box, err error) error {
	var ae *api.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrBudget):
		if b.now() != Creating { // what was never started only has to be refused
			b.end(api.EndPolicy)
			go e.stop(b, api.EndPolicy)
		}
		return &api.Error{Code: api.CodeSandboxEnded, Message: fmt.Sprintf("sandbox %s has used up its event budget and ends", b.id)}
	case errors.As(err, &ae), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return &api.Error{Code: api.CodeAuditFailed, Message: "record the decision: " + err.Error(), Hint: "see the daemon's log; a full disk is the usual cause"}
}

// What events say, by type.
type (
	createdData struct {
		Template           string     `json:"template"`
		TemplateResolved   string     `json:"template_resolved"`
		Isolation          string     `json:"isolation"`
		Boundary           string     `json:"boundary"`
		Limits             api.Limits `json:"limits"`
		TTLSeconds         float64    `json:"ttl_seconds"`
		IdleTimeoutSeconds float64    `json:"idle_timeout_seconds"`
		Persistent         bool       `json:"persistent"`
		Env                []string   `json:"env"` // names only

		Egress json.RawMessage `json:"egress,omitempty"` // absent: no link
		Learn  bool            `json:"learn,omitempty"`

		Workspace string `json:"workspace,omitempty"`
		Track     bool   `json:"track,omitempty"`
		Root      bool   `json:"root,omitempty"` // commands may be the guest's root
	}
	startedData struct {
		TimingsMS map[string]float64 `json:"timings_ms"`
	}
	changedData struct {
		TTLSeconds         *float64           `json:"ttl_seconds,omitempty"`
		IdleTimeoutSeconds *float64           `json:"idle_timeout_seconds,omitempty"`
		Persistent         *bool              `json:"persistent,omitempty"`
		Tags               map[string]*string `json:"tags,omitempty"`
		Failed             string             `json:"failed,omitempty"` // the change before this one had no effect
	}
	endedData struct {
		Ending       string    `json:"ending"`
		CapsHit      []string  `json:"caps_hit"`
		Usage        api.Usage `json:"usage"`
		NeverStarted bool      `json:"never_started,omitempty"`
		Reason       string    `json:"reason,omitempty"`
	}
	execStartedData struct {
		ExecID         string   `json:"exec_id"`
		Args           []string `json:"args"`                  // cut at a bound; then the hash says what they were
		ArgsSHA256     string   `json:"args_sha256,omitempty"` // of all, a zero byte after each
		Dir            string   `json:"cwd"`
		User           string   `json:"user"`
		Env            []string `json:"env"` // names only
		TimeoutSeconds float64  `json:"timeout_seconds"`
		Detached       bool     `json:"detached"`
		Kept           bool     `json:"kept,omitempty"`
		TTY            bool     `json:"tty,omitempty"`
		Request        string   `json:"request"` // hash; the same id with another one is a conflict
	}
	execEndedData struct {
		api.ExecResult
		OutputBytes int64 `json:"output_bytes"`
	}
	capData struct {
		Cap    string `json:"cap"`
		ExecID string `json:"exec_id,omitempty"`
		Reason string `json:"reason,omitempty"` // of egress: which of its caps
	}
	fileData struct {
		Path   string `json:"path"`
		Op     string `json:"op"` // write, read, mkdir, move, remove, tar-in, tar-out
		To     string `json:"to,omitempty"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256,omitempty"`
		Partly bool   `json:"partly,omitempty"` // broke off
	}
)

type signalData struct {
	ExecID string `json:"exec_id"`
	Signal int    `json:"signal"`
	All    bool   `json:"all,omitempty"` // all that it started, too
}

type inputData struct {
	ExecID string `json:"exec_id"`
	Bytes  int64  `json:"bytes"`
}

type portData struct {
	Port int   `json:"port"`
	In   int64 `json:"bytes_in,omitempty"`  // into the sandbox
	Out  int64 `json:"bytes_out,omitempty"` // out of it
}
