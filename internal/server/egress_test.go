package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/sandbox"
)

// TestEgressByRole asks for the same changes as everybody: who may narrow, who
// may widen, and whom a sandbox does not exist for.
func TestEgressByRole(t *testing.T) {
	w := newWorldWith(t, sandbox.Options{Egress: egress.New(egress.Options{})})
	const start, wide, none = `[{"allow":"a.test:443"}]`, `[{"allow":"*.test"}]`, `[]`
	for _, who := range []string{"", wrongToken, agent, operator, admin, otherAgent, otherOperator} {
		for _, c := range []struct {
			to    string
			wider bool
		}{{start, false}, {none, false}, {wide, true}} {
			id := w.create(agent, `{"egress":`+start+`}`)
			status, code := 200, ""
			switch {
			case who == "":
				status, code = 401, api.CodeTokenMissing
			case who == wrongToken:
				status, code = 401, api.CodeTokenInvalid
			case strings.HasPrefix(who, "e2b_other"):
				status, code = 404, api.CodeSandboxNotFound
			case who == agent && c.wider:
				status, code = 403, api.CodePolicyWider
			}
			g := w.ask(who, "PATCH", "/v1/sandboxes/"+id+"/egress", `{"egress":`+c.to+`}`)
			if g.status != status || g.err.Code != code {
				t.Errorf("%q, to %s: %d %s, want %d %s", who, c.to, g.status, g.body, status, code)
			}
			now := start
			if status == 200 {
				now = c.to
			}
			var st api.EgressState
			if err := json.Unmarshal([]byte(w.ask(agent, "GET", "/v1/sandboxes/"+id+"/egress", "").body), &st); err != nil || string(st.Egress) != now || !st.Link {
				t.Errorf("%q, to %s: now %s, %v", who, c.to, st.Egress, err)
			}
			w.ask(agent, "DELETE", "/v1/sandboxes/"+id, "")
		}
	}
}

// Lists of an answer are lists, whatever there is to say.
func TestEgressLists(t *testing.T) {
	w := newWorldWith(t, sandbox.Options{Egress: egress.New(egress.Options{})})
	for _, body := range []string{`{}`, `{"egress":[]}`, `{"learn":true}`} {
		id := w.create(agent, body)
		for method, path := range map[string]string{"GET": "/egress", "DELETE": "?report=1"} {
			g := w.ask(agent, method, "/v1/sandboxes/"+id+path, "")
			if g.status != 200 || !strings.Contains(g.body, `"hosts":[]`) || !strings.Contains(g.body, `"denied":[]`) {
				t.Errorf("%s, %s: %d %s", body, method, g.status, g.body)
			}
		}
		if g := w.ask(agent, "GET", "/v1/sandboxes/"+id+"/egress", ""); g.status != 200 || !strings.Contains(g.body, `"hosts":[]`) {
			t.Errorf("%s, ended: %d %s", body, g.status, g.body)
		}
	}
}
