package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// A visit is how a route is asked in the table test, and what the owner of the
// sandbox gets then.
type visit struct {
	query, body string
	header      []string
	status      int
	code        string // where the status is an error's
}

// visits has a line for each route; one that is not there is a GET that
// answers 200, or a part that is missing. {id} is a sandbox of the tenant
// default, {exec} a command that does not exist.
var visits = map[string]visit{
	"sandbox.create":        {body: `{}`, status: 201},
	"sandbox.delete":        {status: 204},
	"sandbox.lifecycle.set": {body: `{"ttl_seconds":600}`, status: 200},
	"sandbox.metadata.set":  {body: `{"tags":{"a":"b"}}`, status: 200},
	"sandbox.egress.set":    {body: `{"egress":[]}`, status: 409, code: api.CodeEgressNoLink},
	"sandbox.pause":         {status: 204},
	"sandbox.resume":        {body: `{}`, status: 204},
	"sandbox.proxy":         {status: 502, code: api.CodePortClosed},
	"sandbox.dial":          {header: []string{"Upgrade", api.StreamProtocol, "Connection", "Upgrade"}, status: 502, code: api.CodePortClosed},

	"exec":        {body: `{"args":["echo","hi"]}`, status: 200},
	"exec.stream": {body: `{"args":["echo","hi"]}`, status: 200},
	"exec.ws":     {status: 400, code: api.CodeBadRequest},
	"exec.pty":    {status: 400, code: api.CodeBadRequest},
	"exec.get":    {status: 404, code: api.CodeExecNotFound},
	"exec.kill":   {status: 404, code: api.CodeExecNotFound},
	"exec.output": {status: 404, code: api.CodeExecNotFound},
	"exec.signal": {body: `{"signal":"TERM"}`, status: 404, code: api.CodeExecNotFound},
	"exec.stdin":  {body: `x`, status: 404, code: api.CodeExecNotFound},

	"fs.read":   {query: "?path=/workspace/none", status: 404, code: api.CodeFileNotFound},
	"fs.write":  {query: "?path=/workspace/f", body: "x", status: 200},
	"fs.delete": {query: "?path=/workspace/none", status: 404, code: api.CodeFileNotFound},
	"fs.dir":    {query: "?path=/workspace", status: 200},
	"fs.mkdir":  {query: "?path=/workspace/d", status: 204},
	"fs.stat":   {query: "?path=/workspace", status: 200},
	"fs.move":   {body: `{"from":"/workspace/none","to":"/workspace/n"}`, status: 404, code: api.CodeFileNotFound},
	"fs.watch":  {query: "?path=/workspace", status: 200},
	"fs.tar":    {query: "?path=/workspace", status: 200},
	"fs.untar":  {query: "?path=/workspace", body: strings.Repeat("\x00", 1024), status: 204},
	"fs.glob":   {query: "?pattern=*", status: 200},
	"fs.list":   {query: "?path=/workspace", status: 200},
	"fs.file":   {query: "?path=none", status: 404, code: api.CodeFileNotFound},

	"sandbox.changes": {query: "?dir=/workspace", status: 409, code: api.CodeSandboxNotTracked},

	"template.delete":       {status: 404, code: api.CodeTemplateNotFound},
	"template.export":       {status: 404, code: api.CodeTemplateNotFound},
	"template.import":       {query: "?name=made&replace=1", body: "x", status: 201},
	"template.pull":         {body: `{"image_ref":"a.test/b:c","replace":true}`, status: 202},
	"template.build":        {body: `{"name":"built","replace":true}`, status: 202},
	"template.build.get":    {status: 404, code: api.CodeBuildNotFound},
	"template.build.cancel": {status: 404, code: api.CodeBuildNotFound},
	"template.build.logs":   {status: 404, code: api.CodeBuildNotFound},
	"workspace.create":      {body: "x", status: 201},
	"workspace.get":         {status: 404, code: api.CodeWorkspaceNotFound},

	"audit.verify":     {status: 200},
	"token.create":     {body: `{"role":"agent"}`, status: 201},
	"token.revoke":     {status: 404, code: api.CodeTokenNotFound},
	"me.tokens.create": {body: `{"label":"x"}`, status: 200},
	"me.tokens.revoke": {status: 404, code: api.CodeTokenNotFound},
}

// nodes are the routes that are about every tenant: those of other tenants get
// 403, whatever their role.
var nodes = map[string]bool{"template.delete": true, "template.export": true, "template.import": true, "template.pull": true, "template.build": true,
	"template.builds": true, "template.build.get": true, "template.build.cancel": true, "template.build.logs": true, "metrics": true, "leaks": true, "audit.head": true, "audit.verify": true, "audit.export": true}

// own are the routes that answer another tenant 404 although no sandbox is in
// their path.
var own = map[string]bool{"audit.report": true}

// TestTable asks every route as everybody, cell by cell.
func TestTable(t *testing.T) {
	w, _ := newRealWorld(t)
	shared := w.create(agent, `{"tags":{"run_id":"run-1"}}`) // for those who get nowhere
	tenants := map[string]string{agent: "default", operator: "default", admin: "default", otherAgent: "other", otherOperator: "other"}
	ranks := map[string]string{agent: api.RoleAgent, operator: api.RoleOperator, admin: api.RoleAdmin, otherAgent: api.RoleAgent, otherOperator: api.RoleOperator}
	for _, r := range api.Routes {
		v, ok := visits[r.Name]
		if !ok {
			v = visit{status: 200}
		}
		for _, who := range []string{"", wrongToken, expired, revoked, agent, operator, admin, otherAgent, otherOperator} {
			want, code := v.status, v.code
			byID := strings.Contains(r.Path, "{id}")
			switch {
			case r.Role == "":
			case who == "":
				want, code = 401, api.CodeTokenMissing
			case ranks[who] == "":
				want, code = 401, api.CodeTokenInvalid
			case api.Rank(ranks[who]) < api.Rank(r.Role):
				want, code = 403, api.CodeTokenForbidden
			case tenants[who] == "other" && (byID || own[r.Name]):
				want, code = 404, api.CodeSandboxNotFound
			case tenants[who] == "other" && nodes[r.Name]:
				want, code = 403, api.CodeTokenForbidden
			case r.Missing != "":
				want, code = 501, api.CodeUnavailable
			}
			id, fresh := shared, false
			if tenants[who] == "default" && r.Missing == "" && byID {
				id, fresh = w.create(agent, `{}`), true
			}
			name := "host"
			if r.Name == "template.delete" || r.Name == "template.export" {
				name = "a%2Fb:c"
			}
			path := strings.NewReplacer("{id}", id, "{exec}", api.NewID(api.KindExec), "{port}", "9", "{path...}", "x",
				"{subject}", "run-1", "{name}", name, "{token}", "t-none").Replace(r.Path)
			path = strings.NewReplacer("{session}", "x", "{snapshot}", "x", "{build}", "x", "{workspace}", api.NewID(api.KindTree)).Replace(path)
			method := r.Method
			if method == "ANY" {
				method = "PUT"
			}
			g := w.ask(who, method, path+v.query, v.body, v.header...)
			if g.status != want || g.err.Code != code {
				t.Errorf("%s as %q: %d %s, want %d %s: %s", r.Name, who, g.status, g.err.Code, want, code, clip(g.body))
			}
			if r.Role != "" && want != 401 && g.header.Get("X-Request-Id") == "" {
				t.Errorf("%s as %q: no X-Request-Id", r.Name, who)
			}
			if g.header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s offers itself to other origins", r.Name)
			}
			if fresh {
				if _, err := w.eng.Delete(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name := range visits {
		if !hasRoute(name) {
			t.Errorf("the table test visits %s, which is no route", name)
		}
	}
	for _, secret := range []string{w.tokens[agent], w.tokens[admin], wrongToken, w.tokens[expired]} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log holds the token %s", secret)
		}
	}
}

func hasRoute(name string) bool {
	for _, r := range api.Routes {
		if r.Name == name {
			return true
		}
	}
	return false
}

func clip(s string) string { return fmt.Sprintf("%.150s", s) }
