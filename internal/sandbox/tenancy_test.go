package sandbox_test

import (
	"io"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/sandbox"
)

func readAll(f io.ReadCloser) (string, error) {
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// Another tenant's sandbox does not exist, whatever is asked of it.
func TestTenancy(t *testing.T) {
	r, _ := newDurable(t, quick)
	ours := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t1", Role: api.RoleAgent})
	ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: "other", Actor: "t2", Role: api.RoleAdmin})
	sb, err := r.Create(ours, api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := r.Spawn(ours, sb.ID, api.ExecRequest{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	id, exec := sb.ID, x.ExecID
	ttl := 10.0
	for name, do := range map[string]func() error{
		"Get":          func() error { _, err := r.Get(ctx, id); return err },
		"Delete":       func() error { _, err := r.Delete(ctx, id); return err },
		"Report":       func() error { _, _, err := r.Report(ctx, id); return err },
		"Lifecycle":    func() error { _, err := r.Lifecycle(ctx, id); return err },
		"SetLifecycle": func() error { _, err := r.SetLifecycle(ctx, id, api.LifecycleChange{TTLSeconds: &ttl}); return err },
		"SetTags":      func() error { _, err := r.SetTags(ctx, id, api.MetadataChange{}); return err },
		"Pause":        func() error { return r.Pause(ctx, id) },
		"Resume":       func() error { return r.Resume(ctx, id) },
		"Metrics":      func() error { _, err := r.Metrics(ctx, id); return err },
		"Egress":       func() error { _, err := r.Egress(ctx, id); return err },
		"SetEgress":    func() error { _, err := r.SetEgress(ctx, id, rules("[]")); return err },
		"Exec":         func() error { _, err := r.Exec(ctx, id, api.ExecRequest{Cmd: "x"}, sandbox.Streams{}); return err },
		"Spawn":        func() error { _, err := r.Spawn(ctx, id, api.ExecRequest{Cmd: "x"}); return err },
		"Execs":        func() error { _, err := r.Execs(ctx, id); return err },
		"GetExec":      func() error { _, err := r.GetExec(ctx, id, exec); return err },
		"Follow": func() error {
			_, err := r.Follow(ctx, id, exec, 0, false, func(api.Chunk) error { return nil })
			return err
		},
		"SignalExec": func() error { return r.SignalExec(ctx, id, exec, 15) },
		"KillExec":   func() error { return r.KillExec(ctx, id, exec) },
		"ResizeExec": func() error { return r.ResizeExec(ctx, id, exec, 1, 1) },
		"WriteStdin": func() error { _, err := r.WriteStdin(ctx, id, exec, strings.NewReader("x"), true); return err },
		"Stat":       func() error { _, err := r.Stat(ctx, id, "/"); return err },
		"ReadFile":   func() error { _, err := r.ReadFile(ctx, id, "/x", 1); return err },
		"WriteFile":  func() error { _, err := r.WriteFile(ctx, id, "/x", 0, strings.NewReader("x")); return err },
		"Mkdir":      func() error { return r.Mkdir(ctx, id, "/x") },
		"Move":       func() error { return r.Move(ctx, id, "/x", "/y") },
		"Remove":     func() error { return r.Remove(ctx, id, "/x") },
		"TarIn":      func() error { return r.TarIn(ctx, id, "/x", strings.NewReader("")) },
		"TarOut":     func() error { _, err := r.TarOut(ctx, id, "/x", nil); return err },
		"Changes":    func() error { _, err := r.Changes(ctx, id, "/"); return err },
		"List":       func() error { _, err := r.List(ctx, id, "/"); return err },
		"Dir":        func() error { _, err := r.Dir(ctx, id, "/"); return err },
		"Glob":       func() error { _, err := r.Glob(ctx, id, "/*"); return err },
		"Watch":      func() error { return r.Watch(ctx, id, "/", false, func(api.FileEvent) error { return nil }) },
		"Dial":       func() error { _, err := r.Dial(ctx, id, 80); return err },
		"Ports":      func() error { _, err := r.Ports(ctx, id); return err },
	} {
		if err := do(); code(err) != api.CodeSandboxNotFound || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l := r.Sandboxes(ctx, sandbox.Filter{Ended: true}); len(l) != 0 {
		t.Errorf("list: %+v", l)
	}
	if sb, err := r.Get(ours, id); err != nil || sb.State != "running" {
		t.Errorf("ours: %+v, %v", sb, err)
	}
	if x, err := r.GetExec(ours, id, exec); err != nil || x.State != api.ExecRunning {
		t.Errorf("ours: %+v, %v", x, err)
	}
}

func TestSandboxes(t *testing.T) {
	r, _ := newDurable(t, quick)
	make := func(tags map[string]string) string {
		sb, err := r.Create(t.Context(), api.CreateRequest{Metadata: tags})
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	a, b := make(map[string]string{"k": "1", "x": "y"}), make(map[string]string{"k": "2"})
	c := make(nil)
	r.Delete(t.Context(), c)
	if err := r.Pause(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f    sandbox.Filter
		want string
	}{
		{sandbox.Filter{}, b + a},
		{sandbox.Filter{Ended: true}, c + b + a},
		{sandbox.Filter{Tags: map[string]string{"k": "1"}}, a},
		{sandbox.Filter{Tags: map[string]string{"k": "1", "x": "z"}}, ""},
		{sandbox.Filter{State: "paused"}, b},
		{sandbox.Filter{State: "ended"}, c},
		{sandbox.Filter{State: "running", Tags: map[string]string{"k": "2"}}, ""},
	} {
		got := ""
		for _, sb := range r.Sandboxes(t.Context(), tt.f) {
			got += sb.ID
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt.f, got)
		}
	}
	tot := r.Totals()
	if tot.Creates != 3 || tot.States["running"] != 1 || tot.States["paused"] != 1 || tot.Endings[api.EndKilled] != 1 || tot.MemoryBytes != 2*api.DefaultMemoryBytes {
		t.Errorf("%+v", tot)
	}
}

// TestBuildStep: what a build's sandbox holds becomes a template for everybody,
// so nobody writes there who may not make one.
func TestBuildStep(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	operator, agent := by(t, api.RoleOperator), by(t, api.RoleAgent)
	sb, err := r.CreateOn(operator, api.CreateRequest{Template: "x", Limits: api.Limits{}}, image.Root{Layers: []string{"host"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Exec(agent, sb.SandboxID, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{}); code(err) != api.CodeSandboxNotFound {
		t.Errorf("exec of an agent: %v", err)
	}
	if _, err := r.Delete(agent, sb.SandboxID); code(err) != api.CodeSandboxNotFound {
		t.Errorf("delete of an agent: %v", err)
	}
	if list := r.Sandboxes(agent, sandbox.Filter{}); len(list) != 0 {
		t.Errorf("an agent sees %v", list)
	}
	if list := r.Sandboxes(operator, sandbox.Filter{}); len(list) != 1 {
		t.Errorf("an operator sees %v", list)
	}
	if _, err := r.Delete(operator, sb.SandboxID); err != nil {
		t.Error(err)
	}
}
