package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/store"
)

func (s *server) eventRoutes() map[string]handler {
	if s.opt.Store == nil {
		return nil
	}
	return map[string]handler{
		"events":         s.events,
		"sandbox.events": s.sandboxEvents,
		"audit.head":     bare(s.auditHead),
		"audit.verify":   bare(s.auditVerify),
		"audit.export":   bare(s.auditExport),
		"audit.report":   bare(s.auditReport),
	}
}

const (
	maxWait     = 60              // seconds of a long poll
	maxEvents   = 1000            // of one answer
	maxFollowed = 64              // read at once for one that follows
	scanFor     = 3 * time.Second // a look through the log that finds nothing
	maxLast     = 1 << 20         // bytes of the last events of a sandbox
)

// heft is about what events take in memory.
func heft(list []api.Event) (n int64) {
	for i := range list {
		n += 512 + int64(len(list[i].Data))
	}
	return n
}

// holdEvents counts events that wait for their client. What is held is given back with
// free.
func (s *server) holdEvents(r *http.Request, list []api.Event) (free func(), err error) {
	tenant, n := sandbox.CallerOf(r.Context()).Tenant, heft(list)
	if !s.pool.grow(tenant, n) {
		return nil, &api.Error{Code: api.CodeRate, Message: "the answers that wait for your other clients take all memory that is there for them",
			Hint: "read those answers first", RetryAfter: 2}
	}
	return func() { s.pool.give(tenant, n) }, nil
}

// replyEvents answers events, one after the other as they are encoded.
func (s *server) replyEvents(w http.ResponseWriter, r *http.Request, list []api.Event, next uint64, show func(api.Event) any) error {
	free, err := s.holdEvents(r, list)
	if err != nil {
		return err
	}
	defer free()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	until := time.Now().Add(s.opt.WriteTimeout + time.Duration(heft(list)/slowest)*time.Second)
	b := bufio.NewWriterSize(&brisk{w, until}, 32<<10)
	b.WriteString(`{"events":[`)
	for i, e := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		line, err := json.Marshal(show(e))
		if err != nil {
			panic(err) // it was decoded
		}
		b.Write(line)
	}
	fmt.Fprintf(b, `],"next":%d}`+"\n", next)
	if b.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// events answers the events of the caller's own tenant: those that there are,
// the next one that comes, or all as they come.
func (s *server) events(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"after", "limit", "sandbox_id", "run_id", "session", "wait", "follow", "stream"}, []string{"type"})
	if err != nil {
		return err
	}
	sel, err := s.selection(r, q)
	if err != nil {
		return err
	}
	follow, stream, err := asStream(r, q)
	if err != nil {
		return err
	}
	wait, err := seconds(q, "wait", maxWait)
	if err != nil {
		return err
	}
	if follow || stream {
		return s.followEvents(w, r, sel, func(e api.Event) (string, any) { return e.Type, e })
	}
	ctx, cancel := s.untilStop(r.Context(), 0)
	defer cancel(nil)
	list, next, err := s.look(ctx, sel, wait)
	if err != nil {
		return err
	}
	return s.replyEvents(w, r, list, next, func(e api.Event) any { return e })
}

// asStream says how a client wants events: follow is what comes from now on,
// stream that the answer is server-sent events, asked for by a parameter or by
// name.
func asStream(r *http.Request, q url.Values) (follow, stream bool, err error) {
	if follow, err = truth(q, "follow"); err != nil {
		return false, false, err
	}
	if stream, err = truth(q, "stream"); err != nil {
		return false, false, err
	}
	return follow, stream || strings.HasPrefix(strings.TrimSpace(r.Header.Get("Accept")), "text/event-stream"), nil
}

// selection is which events a request wants, of its own tenant in any case.
func (s *server) selection(r *http.Request, q url.Values) (store.Query, error) {
	sel := store.Query{
		Types: slices.DeleteFunc(q["type"], func(t string) bool { return t == "" }), SandboxID: q.Get("sandbox_id"), RunID: q.Get("run_id"), Session: q.Get("session"),
		Tenant: sandbox.CallerOf(r.Context()).Tenant,
	}
	sel.Turn = func() (func(), error) { return s.turns.take(r.Context(), sel.Tenant, maxWaiting) }
	limit, err := number(q, "limit", 100, 1, maxEvents)
	if err != nil {
		return sel, err
	}
	sel.Limit = int(limit)
	if q.Get("after") == "end" {
		sel.After = s.opt.Store.Head().Seq
		return sel, nil
	}
	if sel.After, err = number(q, "after", 0, 0, 1<<62); err != nil {
		return sel, err
	}
	// An EventSource that comes back says where it was.
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		if sel.After, err = strconv.ParseUint(id, 10, 62); err != nil {
			return sel, &api.Error{Code: api.CodeBadRequest, Message: "Last-Event-ID: a number is expected"}
		}
	}
	return sel, nil
}

// look finds the next events, and waits for them if there are none.
func (s *server) look(ctx context.Context, sel store.Query, wait time.Duration) (list []api.Event, next uint64, err error) {
	began := time.Now()
	wctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		list, next, err = s.opt.Store.Events(sel)
		if list == nil {
			list = []api.Event{}
		}
		if err != nil || len(list) > 0 {
			return list, next, err
		}
		next = max(next, sel.After)
		sel.After = next
		if next < s.opt.Store.Head().Seq {
			if ctx.Err() != nil || time.Since(began) > max(wait, scanFor) {
				return list, next, nil
			}
			continue
		}
		if wctx.Err() != nil {
			return list, next, nil
		}
		if err := s.opt.Store.Wait(wctx, next); err != nil {
			if wctx.Err() != nil {
				return list, next, nil
			}
			return nil, 0, err
		}
	}
}

// followEvents streams events until the client leaves.
func (s *server) followEvents(w http.ResponseWriter, r *http.Request, sel store.Query, show func(api.Event) (string, any)) error {
	x, ctx := s.sse(w, r, 0)
	defer x.end()
	sel.Limit = min(sel.Limit, maxFollowed)
	sel.Turn = func() (func(), error) { return s.turns.take(ctx, sel.Tenant, anyWaiting) }
	for ctx.Err() == nil {
		list, next, err := s.look(ctx, sel, maxWait*time.Second)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				x.fail(err)
			}
			return nil
		}
		free, err := s.holdEvents(r, list)
		if err != nil { // it is asked for again when there is room
			select {
			case <-ctx.Done():
			case <-time.After(s.opt.Heartbeat):
			}
			continue
		}
		for _, e := range list {
			name, v := show(e)
			if x.event(int64(e.Seq), name, v) != nil {
				break // which ends ctx
			}
		}
		free()
		sel.After = next
	}
	return nil
}

// A sandboxEvent is an event as PandaStack shows it, with our fields beside.
type sandboxEvent struct {
	api.Event
	Payload json.RawMessage `json:"payload"` // the same as data
}

// sandboxEvents answers the last events of one sandbox.
func (s *server) sandboxEvents(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"after", "limit", "tail", "follow", "stream"}, []string{"type"})
	if err != nil {
		return err
	}
	sb, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	sel, err := s.selection(r, q)
	if err != nil {
		return err
	}
	sel.SandboxID = sb.SandboxID
	tail, err := number(q, "tail", 0, 0, maxEvents)
	if err != nil {
		return err
	}
	follow, stream, err := asStream(r, q)
	if err != nil {
		return err
	}
	if !q.Has("tail") && !q.Has("after") && !q.Has("limit") {
		tail = maxEvents // all, within reason
	}
	ctx, cancel := s.untilStop(r.Context(), 0)
	defer cancel(nil)
	list, next := []api.Event{}, sel.After
	if tail > 0 {
		if list, next, err = s.last(ctx, sel, int(tail)); err != nil {
			return err
		}
	} else if !follow {
		if list, next, err = s.look(ctx, sel, 0); err != nil {
			return err
		}
	}
	if !follow && !stream {
		return s.replyEvents(w, r, list, next, func(e api.Event) any { return sandboxEvent{e, e.Data} })
	}
	if len(list) > 0 {
		sel.After = list[0].Seq - 1
	} else {
		sel.After = next
	}
	return s.followEvents(w, r, sel, func(e api.Event) (string, any) { return "event", sandboxEvent{e, e.Data} })
}

// last is the last n events of a selection.
func (s *server) last(ctx context.Context, sel store.Query, n int) (list []api.Event, next uint64, err error) {
	list, sel.Limit = []api.Event{}, maxEvents
	began := time.Now()
	for next = sel.After; ; sel.After = next {
		more, to, err := s.opt.Store.Events(sel)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, more...)
		if len(list) > n {
			list = append(list[:0], list[len(list)-n:]...)
		}
		size, drop := heft(list), 0
		for ; size > maxLast && drop < len(list)-1; drop++ {
			size -= heft(list[drop : drop+1])
		}
		list = append(list[:0], list[drop:]...)
		if to <= next || to >= s.opt.Store.Head().Seq || ctx.Err() != nil || time.Since(began) > scanFor {
			return list, max(next, to), nil
		}
		next = to
	}
}

// auditHead says where the log ends, which counts every tenant's events.
func (s *server) auditHead(w http.ResponseWriter, r *http.Request) error {
	if err := s.node(r); err != nil {
		return err
	}
	reply(w, http.StatusOK, s.opt.Store.Head())
	return nil
}

// auditVerify proves the log, up to a head that the caller kept if it sends one.
func (s *server) auditVerify(w http.ResponseWriter, r *http.Request) error {
	if err := s.node(r); err != nil {
		return err
	}
	b, err := body(w, r, 4<<10)
	if err != nil {
		return err
	}
	var head *api.Head
	if t := strings.TrimSpace(string(b)); t != "" && t != "{}" && t != "null" {
		head = &api.Head{}
		if err := decodeBytes(b, head); err != nil {
			return err
		}
	}
	v, err := s.opt.Store.Verify(r.Context(), head)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, v)
	return nil
}

// auditExport gives the log as it is, every tenant's.
func (s *server) auditExport(w http.ResponseWriter, r *http.Request) error {
	if err := s.node(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Method == http.MethodHead {
		return nil
	}
	return s.opt.Store.Export(r.Context(), w)
}

func (s *server) auditReport(w http.ResponseWriter, r *http.Request) error {
	rep, err := s.opt.Store.Report(r.Context(), sandbox.CallerOf(r.Context()).Tenant, r.PathValue("subject"))
	if err != nil {
		return err
	}
	for _, id := range []string{r.PathValue("subject"), rep.Sandbox.SandboxID} { // the engine knows more of it than the log
		if sb, err := s.find(r.Context(), id); err == nil {
			rep.Sandbox = sb
			s.soFar(r, &rep)
			break
		}
	}
	reply(w, http.StatusOK, lists(rep))
	return nil
}
