package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/sandbox"
)

// tree is an uploaded one.
const tree = "wabcdefghijklmnopqrstuvwxyz"

// roots are templates with defaults, and a tree of tenant t.
func roots(name string) (image.Root, error) {
	config := func(user, workdir string, env ...string) api.TemplateConfig {
		return api.TemplateConfig{User: user, Workdir: workdir, Env: env, Entrypoint: []string{"never"}, Cmd: []string{"added"}}
	}
	switch name {
	case "host":
		return image.Root{Layers: []string{"host"}}, nil
	case "python:3.12-slim":
		return image.Root{Layers: []string{"a", "b"}, Defaults: image.Defaults{
			TemplateConfig: config("", "/srv/app", "PATH=/opt/bin:/bin", "LANG=de", "WHO=image", "broken"), UID: 1000, GID: 1000, Home: "/home/agent"}}, nil
	case "named":
		return image.Root{Layers: []string{"a"}, Defaults: image.Defaults{TemplateConfig: config("node:staff", ""), UID: 1001, GID: 50, Home: "/home/node"}}, nil
	case "rooted":
		return image.Root{Layers: []string{"a"}, Defaults: image.Defaults{TemplateConfig: config("root", "/root"), Home: "/root", Root: true}}, nil
	case "granted":
		return image.Root{Layers: []string{"a"}, Defaults: image.Defaults{TemplateConfig: config("1001", ""), UID: 1001, GID: 0, Root: true}}, nil
	case "tall":
		return image.Root{Layers: slices.Repeat([]string{"a"}, image.MaxLayers)}, nil
	case "workspace/t/" + tree:
		return image.Root{Layers: []string{"w", "x"}}, nil
	}
	return image.Root{}, &api.Error{Code: api.CodeTemplateNotFound, Message: "no template " + name}
}

// told is what a command finds, by name, with the directory as PWD.
func told(t *testing.T, r *rig, id string, req api.ExecRequest) (map[string]string, error) {
	t.Helper()
	var out strings.Builder
	req.Args = []string{"env"}
	res, err := r.Exec(t.Context(), id, req, sandbox.Streams{Output: func(_ sandbox.Stream, p []byte) error { out.Write(p); return nil }})
	if err == nil && (res.Ending != api.EndExit || res.ExitCode != 0) {
		t.Errorf("env: %+v", res)
	}
	env := map[string]string{}
	for line := range strings.Lines(out.String()) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[k] = v
	}
	return env, err
}

func TestDefaults(t *testing.T) {
	opt := quick
	opt.Images = roots
	r := newRig(t, opt)
	for _, c := range []struct {
		template, user string
		want           map[string]string // of the environment; "-": it is not there
		code           string
	}{
		{"host", "", map[string]string{"HOME": "/home/agent", "USER": "agent", "PWD": "/workspace", "LANG": "C.UTF-8"}, ""},
		{"host", "root", nil, api.CodeUnavailable},
		{"host", "1000", nil, ""},
		{"host", "1001", nil, api.CodeBadRequest},
		{"python:3.12-slim", "", map[string]string{"HOME": "/home/agent", "PATH": "/opt/bin:/bin", "LANG": "de", "PWD": "/srv/app", "WHO": "sandbox", "broken": "-"}, ""},
		{"named", "", map[string]string{"HOME": "/home/node", "USER": "node", "PWD": "/workspace"}, ""},
		{"named", "node", map[string]string{"HOME": "/home/node"}, ""},
		{"named", "agent", map[string]string{"HOME": "/home/agent", "USER": "agent"}, ""},
		{"named", "root", nil, api.CodeUnavailable},
		{"named", "0", nil, api.CodeUnavailable},
		{"named", "other", nil, api.CodeBadRequest},
		{"rooted", "", map[string]string{"HOME": "/root", "USER": "root", "PWD": "/root"}, ""},
		{"rooted", "root", map[string]string{"HOME": "/root"}, ""},
		{"rooted", "agent", map[string]string{"HOME": "/home/agent", "USER": "agent"}, ""},
		{"granted", "", map[string]string{"HOME": "/", "USER": "-"}, ""},
		{"granted", "root", map[string]string{"HOME": "/root", "USER": "root"}, ""},
	} {
		sb, err := r.Create(t.Context(), api.CreateRequest{Template: c.template, Env: map[string]string{"WHO": "sandbox"}})
		if err != nil {
			t.Fatalf("%s: %v", c.template, err)
		}
		got, err := told(t, r, sb.SandboxID, api.ExecRequest{User: c.user, Env: map[string]string{"OWN": "exec"}})
		if c.code == "" && err != nil || c.code != "" && code(err) != c.code {
			t.Errorf("%s as %q: %v, want %q", c.template, c.user, err, c.code)
		}
		for k, v := range c.want {
			if have, ok := got[k]; ok == (v == "-") || ok && have != v {
				t.Errorf("%s as %q: %s is %q, want %q", c.template, c.user, k, have, v)
			}
		}
		if err == nil && (got["WHO"] != "sandbox" || got["OWN"] != "exec") {
			t.Errorf("%s as %q: what was asked for is not there: %v", c.template, c.user, got)
		}
		r.Delete(t.Context(), sb.SandboxID)
	}
	if _, err := r.Create(t.Context(), api.CreateRequest{Template: "workspace/t/" + tree}); code(err) != api.CodeTemplateNotFound {
		t.Errorf("a tree as a template: %v", err)
	}
}

func TestWorkspace(t *testing.T) {
	opt := quick
	opt.Images = roots
	r, p := newMortal(t, opt)
	ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: "t", Actor: "a"})
	other := sandbox.As(t.Context(), sandbox.Caller{Tenant: "u", Actor: "a"})
	for what, err := range map[string]error{
		"another tenant's": second(r.Create(other, api.CreateRequest{Workspace: tree})),
		"none":             second(r.Create(ctx, api.CreateRequest{Workspace: "wzzzzzzzzzzzzzzzzzzzzzzzzzz"})),
		"a path":           second(r.Create(ctx, api.CreateRequest{Workspace: "../t/" + tree})),
	} {
		if code(err) != api.CodeWorkspaceNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Create(ctx, api.CreateRequest{Template: "tall", Workspace: tree}); code(err) != api.CodeWorkspaceTooLarge {
		t.Errorf("too many layers: %v", err)
	}
	sb, err := r.Create(ctx, api.CreateRequest{Template: "named", Workspace: tree})
	if err != nil {
		t.Fatal(err)
	}
	check := func(r *rig) {
		t.Helper()
		f, err := r.Changes(ctx, sb.SandboxID, "/workspace")
		if err != nil {
			t.Fatalf("it is tracked: %v", err)
		}
		f.Close()
		if res, err := r.Exec(ctx, sb.SandboxID, api.ExecRequest{Args: []string{"pwd"}, User: "agent"}, sandbox.Streams{}); err != nil || res.Ending != api.EndExit {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := r.Exec(ctx, sb.SandboxID, api.ExecRequest{Args: []string{"pwd"}, User: "node"}, sandbox.Streams{}); code(err) != api.CodeBadRequest {
			t.Errorf("as the template's user, whose the tree is not: %+v, %v", res, err)
		}
	}
	check(r)
	check(r.reborn(t, opt, p))
}

func second[T any](_ T, err error) error { return err }
