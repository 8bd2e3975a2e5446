package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

func templatesOf(t *testing.T, w *world, token string) (names []string) {
	t.Helper()
	var list []api.Template
	if g := w.ask(token, "GET", "/v1/templates", ""); json.Unmarshal([]byte(g.body), &list) != nil {
		t.Fatalf("%d %s", g.status, g.body)
	}
	for _, x := range list {
		names = append(names, x.Name)
	}
	return names
}

func TestImport(t *testing.T) {
	w := newWorld(t)
	path := "/v1/templates/import?name=a/b:c@d&user=root&workdir=/srv&env=A=1&env=B=2&cmd=sh"
	if g := w.ask(operator, "POST", path, "the archive"); g.status != 201 || !strings.Contains(g.body, `"name":"a/b:c@d"`) {
		t.Fatalf("%d %s", g.status, g.body)
	}
	job := w.shelf.Jobs[0]
	if job.Config.User != "root" || job.Config.Workdir != "/srv" || !slices.Equal(job.Config.Env, []string{"A=1", "B=2"}) || !slices.Equal(job.Config.Cmd, []string{"sh"}) {
		t.Errorf("%+v", job)
	}
	for _, tt := range []struct {
		path, body string
		status     int
		code       string
	}{
		{path, "again", 409, api.CodeTemplateExists},
		{path + "&replace=1", "again", 201, ""},
		{"/v1/templates/import?name=x", "bad", 422, api.CodeTemplateInvalid},
		{"/v1/templates/import", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=host", "x", 409, api.CodeTemplateExists},
		{"/v1/templates/import?name=builds", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=../x", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=a/../x", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=workspace/default/x", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=x&replace=maybe", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=x&mount=/", "x", 400, api.CodeBadRequest},
		{"/v1/templates/import?name=" + strings.Repeat("x", 129), "x", 400, api.CodeBadRequest},
	} {
		if g := w.ask(operator, "POST", tt.path, tt.body); g.status != tt.status || g.err.Code != tt.code {
			t.Errorf("%s: %d %s, want %d %s", tt.path, g.status, g.body, tt.status, tt.code)
		}
	}
	if got := templatesOf(t, w, agent); !slices.Equal(got, []string{"a/b:c@d", "host", "base", "code-interpreter", "ubuntu-24.04"}) {
		t.Errorf("listed: %q", got)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/v1/templates/a%2Fb:c@d", 200, `"user":"root"`},
		{"GET", "/v1/templates/code-interpreter", 200, `"resolved":"host"`},
		{"GET", "/v1/templates/a%2Fb:c@d/export", 200, "again"},
		{"GET", "/v1/templates/a%2Fb:c@d/export?format=tar", 200, "again"},
		{"GET", "/v1/templates/a%2Fb:c@d/export?format=zip", 400, "oci, docker or tar"},
		{"GET", "/v1/templates/none/export", 404, "does not exist"},
		{"DELETE", "/v1/templates/host", 409, "stays"},
		{"DELETE", "/v1/templates/code-interpreter", 404, "does not exist"},
		{"DELETE", "/v1/templates/a%2Fb:c@d", 204, ""},
		{"DELETE", "/v1/templates/a%2Fb:c@d", 404, "does not exist"},
	} {
		if g := w.ask(operator, tt.method, tt.path, ""); g.status != tt.status || !strings.Contains(g.body, tt.says) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, g.status, g.body)
		}
	}
	if g := w.ask(operator, "HEAD", "/v1/templates/host/export", ""); g.status != 200 || g.header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("HEAD: %d %v", g.status, g.header)
	}
}

// A template of an alias' own name is that template.
func TestAliasLoses(t *testing.T) {
	w := newWorld(t)
	w.ask(operator, "POST", "/v1/templates/import?name=code-interpreter", "x")
	if g := w.ask(agent, "GET", "/v1/templates/code-interpreter", ""); strings.Contains(g.body, "resolved") {
		t.Error(g.body)
	}
	n := 0
	for _, name := range templatesOf(t, w, agent) {
		if name == "code-interpreter" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("code-interpreter is there %d times", n)
	}
}

// An archive that breaks off makes nothing.
func TestImportBreaksOff(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, wr := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/templates/import?name=half", r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+operator)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := w.http.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	io.WriteString(wr, "the first half")
	cancel()
	wr.CloseWithError(context.Canceled) // a client that waits for more of its body does not leave
	<-done
	deadline := time.Now().Add(10 * time.Second)
	for strings.Count(w.log.String(), "route=template.import") == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the server goes on without its client")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := templatesOf(t, w, agent); slices.Contains(got, "half") {
		t.Errorf("listed: %q", got)
	}
}

// A file of a form.
type formFile struct{ field, name, kind, text string }

func form(t *testing.T, fields [][2]string, files ...formFile) (kind, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		w.WriteField(f[0], f[1])
	}
	for _, f := range files {
		p, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf("form-data; name=%q; filename=%q", f.field, f.name)}, "Content-Type": {f.kind}})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, f.text)
	}
	w.Close()
	return w.FormDataContentType(), b.String()
}

// Builds as our own clients and as PandaStack's send them.
func TestBuild(t *testing.T) {
	w := newWorld(t)
	fields := [][2]string{{"name", "from-form"}, {"dockerfile", "FROM x"}, {"size_mb", "1024"}, {"cpu", "2"}, {"memory_mb", "512"}}
	urlencoded := func(pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return v.Encode()
	}
	multi := func(fields [][2]string, files ...formFile) [2]string {
		kind, body := form(t, fields, files...)
		return [2]string{kind, body}
	}
	const octets, plainForm = "application/octet-stream", "application/x-www-form-urlencoded"
	own := formFile{"request", "request", "application/json", `{"name":"own","dockerfile":"FROM y"}`}
	for _, tt := range []struct {
		name   string
		send   [2]string
		status int
		code   string
		asked  string // the template
		came   string
	}{
		{"json", [2]string{"application/json", `{"name":"j","debs":["git"],"keyring":"aGk="}`}, 202, "", "j", ""},
		{"json without a name", [2]string{"application/json", `{"debs":["git"]}`}, 400, api.CodeBadRequest, "", ""},
		{"json with more", [2]string{"application/json", `{"name":"j2","sudo":true}`}, 400, api.CodeBadRequest, "", ""},
		{"register", [2]string{plainForm, urlencoded("name", "reg", "image_ref", "a.test/x:1", "size_mb", "1024")}, 202, "", "reg", ""},
		{"unknown field", [2]string{plainForm, urlencoded("name", "reg2", "colour", "red")}, 400, api.CodeBadRequest, "", ""},
		{"twice", [2]string{plainForm, urlencoded("name", "a", "name", "b")}, 400, api.CodeBadRequest, "", ""},
		{"no number", [2]string{plainForm, urlencoded("name", "reg3", "cpu", "many")}, 400, api.CodeBadRequest, "", ""},
		{"dockerfile", multi(fields, formFile{"src/app.py", "app.py", octets, "print()"}, formFile{"name", "name", octets, "a file"}), 202, "", "from-form", "src/app.py"},
		{"rootfs", multi([][2]string{{"name", "root"}}, formFile{"rootfs", "rootfs.tar", octets, "the archive"}), 202, "", "root", "the archive"},
		{"a context with rootfs", multi([][2]string{{"name", "df2"}, {"dockerfile", "FROM x"}}, formFile{"rootfs", "rootfs", octets, "x"}), 202, "", "df2", "rootfs\x00"},
		{"our own", multi(nil, own, formFile{"context", "context", "application/x-tar", "the tar"}), 202, "", "own", "the tar"},
		{"our own without files", multi(nil, formFile{"request", "request", "application/json", `{"name":"own2"}`}), 202, "", "own2", ""},
		{"our own with another file", multi(nil, own, formFile{"context", "context", octets, "x"}), 400, api.CodeBadRequest, "", ""},
		{"outside", multi([][2]string{{"name", "df3"}, {"dockerfile", "FROM x"}}, formFile{"../x", "x", octets, "x"}), 400, api.CodeBadRequest, "", ""},
		{"a field after a file", [2]string{"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\ndf4\r\n--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=\"dockerfile\"\r\n\r\nFROM\r\n--b--\r\n"}, 400, api.CodeBadRequest, "", ""},
		{"cut", [2]string{"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\ndf5"}, 400, api.CodeBadRequest, "", ""},
		{"no form", [2]string{"multipart/form-data; boundary=b", "hello"}, 400, api.CodeBadRequest, "", ""},
		{"something else", [2]string{"text/plain", "hello"}, 400, api.CodeBadRequest, "", ""},
		{"exists", [2]string{"application/json", `{"name":"own"}`}, 409, api.CodeTemplateExists, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(w.builds.Asked)
			g := w.ask(operator, "POST", "/v1/templates/build", tt.send[1], "Content-Type", tt.send[0])
			if g.status != tt.status || g.err.Code != tt.code {
				t.Fatalf("%d %s", g.status, g.body)
			}
			if tt.asked == "" {
				return
			}
			if len(w.builds.Asked) != before+1 || w.builds.Asked[before].Name != tt.asked || !strings.Contains(w.builds.Inputs[before], tt.came) {
				t.Errorf("asked for %+v with %.100q", w.builds.Asked, w.builds.Inputs)
			}
		})
	}
	req := w.builds.Asked[slices.IndexFunc(w.builds.Asked, func(r api.BuildRequest) bool { return r.Name == "from-form" })]
	if req.Dockerfile != "FROM x" || req.Limits.CPUs != 2 || req.Limits.MemoryBytes != 512<<20 {
		t.Errorf("%+v", req)
	}
}

func TestBuildIsFollowed(t *testing.T) {
	w := newWorld(t)
	start := func(name string) api.Build {
		var b api.Build
		g := w.ask(operator, "POST", "/v1/templates/pull", `{"image_ref":"a.test/x:1","name":"`+name+`"}`)
		if json.Unmarshal([]byte(g.body), &b) != nil || g.status != 202 {
			t.Fatalf("%d %s", g.status, g.body)
		}
		return b
	}
	slow, failed := start("slow"), start("fail")
	logs := func(id, query string) string {
		req, err := http.NewRequestWithContext(t.Context(), "GET", w.url+"/v1/templates/builds/"+id+"/logs"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+operator)
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
			t.Errorf("%v %v", resp.Header, err)
		}
		return string(b)
	}
	want := "data: step 1/1: slow\n\ndata: café  [31mred\n\ndata: (end)\n\ndata: end\n\n"
	if got := logs(slow.ID, ""); got != want {
		t.Errorf("%q", got)
	}
	time.AfterFunc(20*time.Millisecond, func() { w.ask(operator, "DELETE", "/v1/templates/builds/"+slow.ID, "") })
	if got := logs(slow.ID, "?follow=1"); got != want {
		t.Errorf("%q", got)
	}
	for id, says := range map[string]string{slow.ID: "cancelled", failed.ID: "exit status 7"} {
		if g := w.ask(operator, "GET", "/v1/templates/builds/"+id, ""); g.status != 200 || !strings.Contains(g.body, says) || !strings.Contains(g.body, `"status":"failed"`) {
			t.Errorf("%d %s", g.status, g.body)
		}
	}
	var list []api.Build
	if g := w.ask(operator, "GET", "/v1/templates/builds", ""); json.Unmarshal([]byte(g.body), &list) != nil || len(list) != 2 || list[0].ID != failed.ID {
		t.Errorf("%s", g.body)
	}
	for _, body := range []string{`{}`, `{"image_ref":"x","from":"y"}`, `{"image_ref":"x","dockerfile":"y"}`, `{"image_ref":"host"}`} {
		if g := w.ask(operator, "POST", "/v1/templates/pull", body); g.status != 400 && g.status != 409 {
			t.Errorf("%s: %d %s", body, g.status, g.body)
		}
	}
}

func TestWorkspaces(t *testing.T) {
	w := newWorld(t)
	put := func(token, query string) (tree api.WorkTree, g got) {
		g = w.ask(token, "POST", "/v1/workspaces"+query, "tree "+query)
		json.Unmarshal([]byte(g.body), &tree)
		return tree, g
	}
	first, g := put(agent, "")
	if g.status != 201 || first.Layers != 1 {
		t.Fatalf("%d %s", g.status, g.body)
	}
	if job := w.shelf.Jobs[0]; job.Prefix != "/workspace" || job.Owner == nil || *job.Owner != [2]uint32{1000, 1000} || job.Below != nil {
		t.Errorf("%+v", job)
	}
	second, g := put(agent, "?parent="+first.WorkspaceID)
	if g.status != 201 || second.Layers != 2 || second.Parent != first.WorkspaceID || w.shelf.Jobs[1].Below == nil {
		t.Fatalf("%d %s", g.status, g.body)
	}
	for token, status := range map[string]int{agent: 200, admin: 200, otherAgent: 404, otherOperator: 404} {
		if g := w.ask(token, "GET", "/v1/workspaces/"+second.WorkspaceID, ""); g.status != status {
			t.Errorf("%s: %d %s", token, g.status, g.body)
		}
	}
	if _, g := put(otherAgent, "?parent="+first.WorkspaceID); g.status != 404 || g.err.Code != api.CodeWorkspaceNotFound {
		t.Errorf("another tenant's parent: %d %s", g.status, g.body)
	}
	if got := templatesOf(t, w, agent); len(got) != 4 {
		t.Errorf("trees are listed as templates: %q", got)
	}
	for _, path := range []string{"/v1/templates/workspace%2Fdefault%2F" + first.WorkspaceID, "/v1/templates/workspace%2Fdefault%2F" + first.WorkspaceID + "/export"} {
		if g := w.ask(operator, "GET", path, ""); g.status != 404 {
			t.Errorf("%s: %d", path, g.status)
		}
	}
	if g := w.ask(operator, "DELETE", "/v1/templates/workspace%2Fdefault%2F"+first.WorkspaceID, ""); g.status != 404 {
		t.Errorf("a tree was removed as a template: %d", g.status)
	}
	parent := second.WorkspaceID
	for range 20 {
		tree, g := put(agent, "?parent="+parent)
		if g.err.Code == api.CodeWorkspaceTooLarge {
			break
		}
		if parent = tree.WorkspaceID; tree.Layers > 10 {
			t.Fatal("a chain has no end")
		}
	}
	// The longest unused goes: not the one that is asked for all the time.
	other, _ := put(otherAgent, "")
	for range 70 {
		w.ask(agent, "GET", "/v1/workspaces/"+first.WorkspaceID, "")
		if _, g := put(agent, ""); g.status != 201 {
			t.Fatalf("%d %s", g.status, g.body)
		}
	}
	for id, status := range map[string]int{first.WorkspaceID: 200, second.WorkspaceID: 404} {
		if g := w.ask(agent, "GET", "/v1/workspaces/"+id, ""); g.status != status {
			t.Errorf("%s: %d, want %d", id, g.status, status)
		}
	}
	if g := w.ask(otherAgent, "GET", "/v1/workspaces/"+other.WorkspaceID, ""); g.status != 200 {
		t.Error("one tenant's trees crowd out another's")
	}
}
