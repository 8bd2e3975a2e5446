package server_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestList(t *testing.T) {
	w := newWorld(t)
	if g := w.ask(agent, "GET", "/v1/sandboxes", ""); strings.TrimSpace(g.body) != "[]" {
		t.Errorf("none: %s", g.body)
	}
	a := w.create(agent, `{"tags":{"run_id":"r1","k":"a:b=c"},"session":"s1"}`)
	b := w.create(agent, `{"metadata":{"run_id":"r1"}}`)
	c := w.create(agent, `{"template":"host"}`)
	other := w.create(otherAgent, `{"tags":{"run_id":"r1"}}`)
	gone := w.create(agent, `{"tags":{"run_id":"r1"}}`)
	w.ask(agent, "DELETE", "/v1/sandboxes/"+gone, "")
	for query, want := range map[string][]string{
		"":                                  {c, b, a},
		"tag=run_id=r1":                     {b, a},
		"tag=run_id:r1":                     {b, a},
		"tag.run_id=r1":                     {b, a},
		"metadata.run_id=r1":                {b, a},
		"run_id=r1":                         {b, a},
		"run_id=r1&ended=1":                 {gone, b, a},
		"session=s1":                        {a},
		"tag=session=s1&tag=run_id=r1":      {a},
		"tag=run_id=r1&tag=run_id=r2":       {},
		"tag.k=" + url.QueryEscape("a:b=c"): {a},
		"tag=" + url.QueryEscape("k=a:b=c"): {a},
		"tag=none=x":                        {},
		"state=running":                     {c, b, a},
		"state=paused":                      {},
		"limit=2":                           {c, b},
		"limit=2&after=" + b:                {a},
		"after=" + a:                        {},
	} {
		g := w.ask(agent, "GET", "/v1/sandboxes?"+query, "")
		var l []api.Sandbox
		if err := json.Unmarshal([]byte(g.body), &l); err != nil || g.status != 200 {
			t.Errorf("%s: %d %s", query, g.status, g.body)
			continue
		}
		var got []string
		for _, sb := range l {
			got = append(got, sb.SandboxID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, want %v (of %s %s %s)", query, got, want, a, b, c)
		}
	}
	for _, bad := range []string{"tag=x", "tag==x", "tag.=x", "nope=1"} {
		if g := w.ask(agent, "GET", "/v1/sandboxes?"+bad, ""); g.status != 400 {
			t.Errorf("%s: %d", bad, g.status)
		}
	}
	if g := w.ask(otherAgent, "GET", "/v1/sandboxes", ""); !strings.Contains(g.body, other) || strings.Contains(g.body, a) {
		t.Errorf("another tenant sees %s", g.body)
	}
}

// A sandbox's life as PandaStack's clients lead it.
func TestLife(t *testing.T) {
	w := newWorld(t)
	g := w.ask(agent, "POST", "/v1/sandboxes", `{"template":"host","ttl_seconds":120,"metadata":{"run_id":"r1","n":1}}`)
	var sb map[string]any
	if err := json.Unmarshal([]byte(g.body), &sb); err != nil || g.status != 201 {
		t.Fatalf("%d %s", g.status, g.body)
	}
	id := sb["id"].(string)
	for _, f := range []string{"template", "cpu", "memory_mb", "status", "guest_ip", "host_tap", "mac", "vsock_cid", "metadata", "boot_ms", "boot_mode", "persistent", "created_at"} {
		if sb[f] == nil {
			t.Errorf("create has no %s: %s", f, g.body)
		}
	}
	if m, _ := sb["metadata"].(map[string]any); m["n"] != "1" || m["run_id"] != "r1" || sb["status"] != "running" {
		t.Errorf("%s", g.body)
	}
	path := "/v1/sandboxes/" + id
	for _, tt := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", path, "", 200, `"persistent":false`},
		{"GET", path + "/lifecycle", "", 200, `"ttl_seconds":120`},
		{"PATCH", path + "/lifecycle", `{"ttl_seconds":600}`, 200, `"ttl_seconds":600`},
		{"PATCH", path + "/lifecycle", `{"persistent":true,"ttl_seconds":null}`, 200, `"persistent":true`},
		{"PATCH", path + "/lifecycle", `{"ttl_seconds":-1}`, 400, ""},
		{"PATCH", path + "/lifecycle", `{"ttl":1}`, 400, ""},
		{"GET", path + "/metadata", "", 200, `{"n":"1","run_id":"r1"}`},
		{"PATCH", path + "/metadata", `{"metadata":{"n":null,"x":"y"}}`, 200, `{"run_id":"r1","x":"y"}`},
		{"PATCH", path + "/metadata", `{"tags":{},"metadata":{}}`, 400, ""},
		{"POST", path + "/pause", "", 204, ""},
		{"GET", path, "", 200, `"status":"paused"`},
		{"POST", path + "/resume", " {} ", 204, ""},
		{"POST", path + "/pause", "{}", 204, ""},
		{"POST", path + "/resume", "", 204, ""},
		{"POST", path + "/pause", `{"x":1}`, 400, ""},
		{"POST", path + "/pause", "x", 400, ""},
		{"GET", path + "/metrics", "", 200, `"host_rss_bytes"`},
		{"POST", path + "/hibernate", "", 501, "snapshots"},
		{"POST", path + "/snapshots", "", 501, "snapshots"},
		{"GET", path + "/report", "", 200, `"caps_hit":[]`},
		{"DELETE", path, "", 204, ""},
		{"DELETE", path, "", 204, ""},
		{"DELETE", path + "?report=1", "", 200, `"ending":"killed"`},
		{"GET", path + "/report", "", 200, `"ending":"killed"`},
		{"DELETE", "/v1/sandboxes/" + api.NewID(api.KindSandbox), "", 404, api.CodeSandboxNotFound},
		{"GET", "/v1/top", "", 200, `"sandboxes":[]`},
		{"GET", "/v1/me", "", 200, `"user_id":"t-agent"`},
	} {
		g := w.ask(agent, tt.method, tt.path, tt.body)
		if g.status != tt.status || !strings.Contains(g.body, tt.has) || g.status == 204 && g.body != "" {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, g.status, g.body)
		}
	}
	if g := w.ask(otherAgent, "DELETE", path, ""); g.status != 404 {
		t.Errorf("another tenant's delete of an ended one: %d", g.status)
	}
}
