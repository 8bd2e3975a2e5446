package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

func (s *server) sandboxRoutes() map[string]handler {
	return map[string]handler{
		"sandbox.create":        s.create,
		"sandbox.list":          s.listSandboxes,
		"sandbox.get":           bare(s.get),
		"sandbox.delete":        s.delete,
		"sandbox.report":        bare(s.report),
		"sandbox.lifecycle":     bare(s.lifecycle),
		"sandbox.lifecycle.set": bare(s.setLifecycle),
		"sandbox.metadata":      bare(s.metadata),
		"sandbox.metadata.set":  bare(s.setMetadata),
		"sandbox.pause":         bare(s.pause),
		"sandbox.resume":        bare(s.resume),
		"sandbox.metrics":       bare(s.sandboxMetrics),
		"sandbox.egress":        bare(s.egress),
		"sandbox.egress.set":    bare(s.setEgress),
	}
}

// create makes a sandbox; under an Idempotency-Key once, however often it is
// asked.
func (s *server) create(w http.ResponseWriter, r *http.Request) error {
	if _, err := params(r, nil, nil); err != nil {
		return err
	}
	b, err := body(w, r, maxBody)
	if err != nil {
		return err
	}
	req, err := decodeCreate(b)
	if err != nil {
		return err
	}
	req.Bound = bound(r)
	if req.Workspace != "" {
		if name, err := treeName(r.Context(), req.Workspace); err == nil {
			s.uses.again(name)
		}
	}
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) > 0 && !req.Bound { // a connection is its own key
		return s.createOnce(w, r, req, keys)
	}
	sb, err := s.e.Create(r.Context(), req)
	if err != nil {
		return err
	}
	if req.Bound {
		return s.hold(w, r, sb)
	}
	reply(w, http.StatusCreated, sb)
	return nil
}

// createOnce makes a sandbox unless one was made under the same key. The answer
// is remembered here, and who made what with the sandbox itself, which outlives
// this process.
func (s *server) createOnce(w http.ResponseWriter, r *http.Request, req api.CreateRequest, keys []string) error {
	key := keys[0]
	if len(keys) > 1 || key == "" || len(key) > api.MaxIdempotencyKey {
		return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("an Idempotency-Key has 1 to %d characters", api.MaxIdempotencyKey)}
	}
	same, err := json.Marshal(req) // one spelling of the request
	if err != nil {
		return err
	}
	digest := digestOf([]byte(key)) + ":"
	req.Key = digest + digestOf(same)
	found := false
	answer, again, err := s.once.do(r.Context(), sandbox.CallerOf(r.Context()).Tenant+"\x00"+key, same, func() (json.RawMessage, error) {
		sb, with, ok := s.e.ByKey(r.Context(), digest)
		if found = ok; ok && with != req.Key {
			return nil, errKey
		}
		if !ok {
			var err error
			if sb, err = s.e.Create(r.Context(), req); err != nil {
				return nil, err
			}
		}
		return json.Marshal(sb)
	})
	if err != nil {
		return err
	}
	if again || found {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	reply(w, http.StatusCreated, answer)
	return nil
}

// The bounds of a list of sandboxes.
const maxList = 1000

func (s *server) listSandboxes(w http.ResponseWriter, r *http.Request) error {
	tags := map[string]string{}
	q, err := params(r, []string{"state", "status", "template", "session", "run_id", "ended", "limit", "after"}, []string{"tag", "tag.*", "metadata.*"})
	if err != nil {
		return err
	}
	for name, values := range q {
		for _, v := range values {
			k := ""
			switch {
			case strings.HasPrefix(name, "tag."):
				k = name[len("tag."):]
			case strings.HasPrefix(name, "metadata."):
				k = name[len("metadata."):]
			case name == "tag":
				i := strings.IndexAny(v, "=:")
				if i < 1 {
					return &api.Error{Code: api.CodeBadRequest, Message: "tag: KEY=VALUE is expected"}
				}
				k, v = v[:i], v[i+1:]
			default:
				continue
			}
			if old, twice := tags[k]; twice && old != v {
				reply(w, http.StatusOK, []api.Sandbox{}) // a tag has one value
				return nil
			}
			tags[k] = v
		}
	}
	ended, err := truth(q, "ended")
	if err != nil {
		return err
	}
	limit, err := number(q, "limit", maxList, 1, maxList)
	if err != nil {
		return err
	}
	out := []api.Sandbox{}
	after := q.Get("after")
	for _, sb := range s.e.Sandboxes(r.Context(), sandbox.Filter{Tags: tags, State: q.Get("state"), Ended: ended}) {
		if after != "" {
			if sb.SandboxID == after {
				after = ""
			}
			continue
		}
		if v := q.Get("status"); v != "" && sb.Status != v {
			continue
		}
		if v := q.Get("template"); v != "" && sb.Template != v {
			continue
		}
		if v := q.Get("session"); v != "" && sb.Session != v {
			continue
		}
		if v := q.Get("run_id"); v != "" && sb.RunID != v && sb.Tags["run_id"] != v {
			continue
		}
		if out = append(out, sb); len(out) == int(limit) {
			break
		}
	}
	reply(w, http.StatusOK, out)
	return nil
}

func (s *server) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, sb)
	return nil
}

// delete ends a sandbox. One that has ended is deleted again, for whoever
// leaves a block that deletes at its end.
func (s *server) delete(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"report"}, nil)
	if err != nil {
		return err
	}
	want, err := truth(q, "report")
	if err != nil {
		return err
	}
	report, err := s.e.Delete(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if !want {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	reply(w, http.StatusOK, report)
	return nil
}

func (s *server) lifecycle(w http.ResponseWriter, r *http.Request) error {
	l, err := s.e.Lifecycle(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, l)
	return nil
}

func (s *server) setLifecycle(w http.ResponseWriter, r *http.Request) error {
	var c api.LifecycleChange
	if err := decode(w, r, &c); err != nil {
		return err
	}
	l, err := s.e.SetLifecycle(r.Context(), r.PathValue("id"), c)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, l)
	return nil
}

func (s *server) egress(w http.ResponseWriter, r *http.Request) error {
	st, err := s.e.Egress(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, st)
	return nil
}

func (s *server) setEgress(w http.ResponseWriter, r *http.Request) error {
	var c api.EgressChange
	if err := decode(w, r, &c); err != nil {
		return err
	}
	st, err := s.e.SetEgress(r.Context(), r.PathValue("id"), c.Egress)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, st)
	return nil
}

func (s *server) metadata(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, sb.Tags)
	return nil
}

func (s *server) setMetadata(w http.ResponseWriter, r *http.Request) error {
	var c struct {
		api.MetadataChange
		Metadata map[string]*string `json:"metadata"` // the other name of the same
	}
	if err := decode(w, r, &c); err != nil {
		return err
	}
	if c.Tags == nil {
		c.Tags = c.Metadata
	} else if c.Metadata != nil {
		return &api.Error{Code: api.CodeBadRequest, Message: "tags and metadata are two names of one thing: send one of them"}
	}
	sb, err := s.e.SetTags(r.Context(), r.PathValue("id"), c.MetadataChange)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, sb.Tags)
	return nil
}

func (s *server) pause(w http.ResponseWriter, r *http.Request) error {
	if err := nothing(w, r); err != nil {
		return err
	}
	if err := s.e.Pause(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) resume(w http.ResponseWriter, r *http.Request) error {
	if err := nothing(w, r); err != nil {
		return err
	}
	if err := s.e.Resume(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) sandboxMetrics(w http.ResponseWriter, r *http.Request) error {
	m, err := s.e.Metrics(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, m)
	return nil
}

// report says what was done in a sandbox, from the log where there is one.
func (s *server) report(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	rep := api.Report{Ending: sb.Ending}
	if s.opt.Store != nil {
		if rep, err = s.opt.Store.Report(r.Context(), sandbox.CallerOf(r.Context()).Tenant, sb.SandboxID); err != nil {
			return err
		}
	} else if rep.Commands, err = s.e.Execs(r.Context(), sb.SandboxID); err != nil {
		return err
	}
	rep.Sandbox = sb
	s.soFar(r, &rep)
	reply(w, http.StatusOK, lists(rep))
	return nil
}

// soFar fills in what only the engine knows while a sandbox has not ended: the
// log has its figures from the end on.
func (s *server) soFar(r *http.Request, rep *api.Report) {
	now, over, err := s.e.Report(r.Context(), rep.Sandbox.SandboxID)
	if err != nil {
		return
	}
	if !over {
		rep.Usage, rep.CapsHit = now.Usage, now.CapsHit
	}
	if s.opt.Store == nil { // no log says it
		rep.Hosts, rep.Denied, rep.Truncated = now.Hosts, now.Denied, rep.Truncated || now.DeniedTruncated
	}
}

// lists gives a report its empty lists.
func lists(r api.Report) api.Report {
	if r.CapsHit == nil {
		r.CapsHit = []string{}
	}
	if r.Commands == nil {
		r.Commands = []api.Exec{}
	}
	if r.FilesIn == nil {
		r.FilesIn = []api.FileMoved{}
	}
	if r.FilesOut == nil {
		r.FilesOut = []api.FileMoved{}
	}
	if r.Hosts == nil {
		r.Hosts = []string{}
	}
	if r.Denied == nil {
		r.Denied = []api.Denial{}
	}
	sb := &r.Sandbox // a run or a session may have had many: then none is named
	if sb.Tags == nil {
		sb.Tags = map[string]string{}
	}
	sb.Metadata = sb.Tags
	if sb.TimingsMS == nil {
		sb.TimingsMS = map[string]float64{}
	}
	if sb.HostFactsWeakening == nil {
		sb.HostFactsWeakening = []string{}
	}
	return r
}
