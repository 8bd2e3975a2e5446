package sandbox_test

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// reaches waits until a sandbox has ended, and says how. It does not touch it.
func (r *rig) reaches(t *testing.T, id string) (ending string) {
	t.Helper()
	wait(t, func() bool {
		for _, sb := range r.Sandboxes(context.Background(), sandbox.Filter{Ended: true}) {
			if sb.ID == id && sb.State == "ended" {
				ending = sb.Ending
				return true
			}
		}
		return false
	})
	return ending
}

// The time to live is wall clock from creation; only more of it helps.
func TestTTL(t *testing.T) {
	r, p := newDurable(t, quick)
	sb, err := r.Create(t.Context(), api.CreateRequest{TTLSeconds: 0.4})
	if err != nil {
		t.Fatal(err)
	}
	began, _ := time.Parse(time.RFC3339Nano, sb.CreatedAt)
	until, _ := time.Parse(time.RFC3339Nano, sb.ExpiresAt)
	if until.Sub(began) != 400*time.Millisecond || sb.TTLSeconds != 0.4 {
		t.Errorf("%+v", sb)
	}
	res, _ := r.exec(t, sb.ID, "sleep", "60") // busy is no excuse
	if d := time.Since(began); d < 400*time.Millisecond || d > 2*time.Second || res.Ending != api.EndTTL {
		t.Errorf("exec = %+v after %v", res, d)
	}
	if end := r.reaches(t, sb.ID); end != api.EndTTL {
		t.Error(end)
	}
	wait(t, func() bool { return slices.Contains(p.types(sb.ID), api.EventSandboxEnded) })
	if got := p.types(sb.ID); got[len(got)-1] != api.EventSandboxEnded || got[len(got)-2] != api.EventExecEnded {
		t.Errorf("events = %q", got)
	}

	sb, err = r.Create(t.Context(), api.CreateRequest{TTLSeconds: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	ttl := 1.2
	l, err := r.SetLifecycle(t.Context(), sb.ID, api.LifecycleChange{TTLSeconds: &ttl})
	if err != nil || l.TTLSeconds != 1.2 {
		t.Fatalf("%+v, %v", l, err)
	}
	created, _ := time.Parse(time.RFC3339Nano, sb.CreatedAt)
	r.reaches(t, sb.ID)
	if d := time.Since(created); d < 1200*time.Millisecond || d > 3*time.Second {
		t.Errorf("ended after %v", d)
	}
}

// The host holds the ttl as well, and no exec's time moves it.
func TestHostHoldsTheTTL(t *testing.T) {
	r, _ := newDurable(t, quick)
	var moves []time.Time
	r.flaky.Deadline = func(at time.Time) error { moves = append(moves, at); return nil }
	sb, err := r.Create(t.Context(), api.CreateRequest{TTLSeconds: 100, Persistent: true})
	if err != nil {
		t.Fatal(err)
	}
	held := func() time.Time {
		l, err := r.flaky.Held(t.Context())
		if err != nil || len(l) != 1 {
			t.Fatal(l, err)
		}
		return l[0].Deadline
	}
	created, _ := time.Parse(time.RFC3339Nano, sb.CreatedAt)
	if d := held().Sub(created); d < 100*time.Second || d > 102*time.Second {
		t.Errorf("the host holds %v", d)
	}
	r.exec(t, sb.ID, "true")
	if len(moves) != 0 {
		t.Errorf("an exec moved the deadline: %v", moves)
	}
	ttl := 500.0
	if _, err := r.SetLifecycle(t.Context(), sb.ID, api.LifecycleChange{TTLSeconds: &ttl}); err != nil {
		t.Fatal(err)
	}
	if d := held().Sub(created); d < 500*time.Second || d > 502*time.Second {
		t.Errorf("the host holds %v", d)
	}
	r.flaky.Deadline = func(time.Time) error { return testkit.ErrFault }
	ttl = 900
	if _, err := r.SetLifecycle(t.Context(), sb.ID, api.LifecycleChange{TTLSeconds: &ttl}); err == nil {
		t.Error("a deadline that the host does not hold")
	}
	if l, _ := r.Lifecycle(t.Context(), sb.ID); l.TTLSeconds != 500 {
		t.Errorf("%+v", l)
	}
	r.flaky.Deadline = nil
}

func TestIdle(t *testing.T) {
	r, _ := newDurable(t, quick)
	create := func(req api.CreateRequest) string {
		req.IdleTimeoutSeconds = 0.3
		sb, err := r.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	id, busy, kept, paused := create(api.CreateRequest{}), create(api.CreateRequest{}), create(api.CreateRequest{Persistent: true}), create(api.CreateRequest{})
	if err := r.Pause(t.Context(), paused); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Spawn(t.Context(), busy, api.ExecRequest{Args: []string{"sleep", "1"}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for time.Since(began) < 600*time.Millisecond { // whoever asks keeps it
		if _, err := r.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if sb := r.Sandboxes(t.Context(), sandbox.Filter{}); len(sb) != 3 { // the paused one is gone
		t.Errorf("%+v", sb)
	}
	if end := r.reaches(t, paused); end != api.EndIdle {
		t.Error(end)
	}
	if end := r.reaches(t, id); end != api.EndIdle {
		t.Error(end)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("took %v", d)
	}
	if end := r.reaches(t, busy); end != api.EndIdle {
		t.Error(end)
	}
	if d := time.Since(began); d < time.Second {
		t.Errorf("a running exec is no idleness; ended after %v", d)
	}
	if sb, err := r.Get(t.Context(), kept); err != nil || sb.State != "running" || !sb.Persistent || sb.IdleTimeoutSeconds != 0 || sb.TTLSeconds != api.PersistentTTL {
		t.Errorf("persistent: %+v, %v", sb, err)
	}
	no := false
	if _, err := r.SetLifecycle(t.Context(), kept, api.LifecycleChange{Persistent: &no}); err != nil {
		t.Fatal(err)
	}
	if end := r.reaches(t, kept); end != api.EndIdle {
		t.Error(end)
	}
}

func TestPause(t *testing.T) {
	r, p := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"exec": func() error {
			_, err := r.Exec(t.Context(), id, api.ExecRequest{Cmd: "x"}, sandbox.Streams{})
			return err
		},
		"spawn": func() error { _, err := r.Spawn(t.Context(), id, api.ExecRequest{Cmd: "x"}); return err },
		"write": func() error { _, err := r.WriteFile(t.Context(), id, "/x", 0, strings.NewReader("")); return err },
		"kill":  func() error { return r.KillExec(t.Context(), id, x.ExecID) },
		"dial":  func() error { _, err := r.Dial(t.Context(), id, 80); return err },
		"list":  func() error { _, err := r.Dir(t.Context(), id, "/"); return err },
	} {
		if err := do(); code(err) != api.CodeSandboxPaused || !strings.Contains(err.(*api.Error).Hint, "resume") {
			t.Errorf("%s: %v", name, err)
		}
	}
	sb, _ := r.Get(t.Context(), id)
	if sb.State != "paused" || sb.Status != api.StatusPaused {
		t.Errorf("%+v", sb)
	}
	if err := r.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := r.KillExec(t.Context(), id, x.ExecID); err != nil {
		t.Error(err)
	}
	r.flaky.PauseErr = testkit.ErrFault
	if err := r.Pause(t.Context(), id); err == nil {
		t.Error("a pause that did not work")
	}
	r.flaky.PauseErr = nil
	if _, out := r.exec(t, id, "echo", "hi"); out != "hi\n" {
		t.Error("it is as it was", out)
	}
	if got := p.types(id); got[len(got)-3] != api.EventSandboxResumed { // before the exec
		t.Errorf("events = %q", got)
	}
	r.Pause(t.Context(), id)
	if end, err := r.Delete(t.Context(), id); err != nil || end.Ending != api.EndKilled {
		t.Errorf("%+v, %v", end, err)
	}
	if err := r.Pause(t.Context(), id); code(err) != api.CodeSandboxEnded {
		t.Error(err)
	}
}

// A deadline that comes while everything stands ends the command when it goes
// on, and never the sandbox.
func TestTimeoutWhilePaused(t *testing.T) {
	opt := quick
	opt.Grace = 5 * time.Second // or a busy machine is taken for a guest that does not end it
	r, _ := newDurable(t, opt)
	id := r.create(t, api.Limits{})
	x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"sleep", "60"}, TimeoutSeconds: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	time.Sleep(400 * time.Millisecond)
	if sb, err := r.Get(t.Context(), id); err != nil || sb.State != "paused" {
		t.Fatalf("%+v, %v", sb, err)
	}
	if err := r.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { x, err = r.GetExec(t.Context(), id, x.ExecID); return x.State == api.ExecEnded })
	if x.Result.Ending != api.EndTimeout || x.Result.ExitCode != 124 {
		t.Errorf("%+v", x.Result)
	}
	if _, out := r.exec(t, id, "echo", "hi"); out != "hi\n" {
		t.Error(out)
	}
}

func TestCreateRequests(t *testing.T) {
	r, _ := newDurable(t, quick)
	ceiling := &api.Policy{TTLSeconds: 60, Templates: []string{"host"}, Limits: api.Limits{MemoryBytes: 64 << 20}}
	agent := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t", Role: api.RoleAgent, Ceiling: ceiling})
	for name, tt := range map[string]struct {
		req  api.CreateRequest
		code string
	}{
		"tags differ":      {api.CreateRequest{Tags: map[string]string{"a": "1"}, Metadata: map[string]string{"a": "2"}}, api.CodeBadRequest},
		"session differs":  {api.CreateRequest{Session: "a", Tags: map[string]string{"session": "b"}}, api.CodeBadRequest},
		"two memories":     {api.CreateRequest{MemoryMB: 64, Limits: api.Limits{MemoryBytes: 65 << 20}}, api.CodeBadRequest},
		"two timeouts":     {api.CreateRequest{TimeoutSeconds: 1, Limits: api.Limits{TimeoutSeconds: 2}}, api.CodeBadRequest},
		"negative cpu":     {api.CreateRequest{CPU: -1}, api.CodeBadRequest},
		"negative ttl":     {api.CreateRequest{TTLSeconds: -1}, api.CodeBadRequest},
		"ttl that is none": {api.CreateRequest{TTLSeconds: math.NaN()}, api.CodeBadRequest},
		"endless ttl":      {api.CreateRequest{TTLSeconds: math.Inf(1)}, api.CodeBadRequest},
		"long ttl":         {api.CreateRequest{TTLSeconds: api.MaxTTLSeconds + 1}, api.CodeBadRequest},
		"negative idle":    {api.CreateRequest{IdleTimeoutSeconds: -1}, api.CodeBadRequest},
		"egress":           {api.CreateRequest{Egress: json.RawMessage(`[]`)}, api.CodeEgressUnavailable},
		"snapshot":         {api.CreateRequest{FromSnapshot: "n1"}, api.CodeUnavailable},
		"volumes":          {api.CreateRequest{Volumes: json.RawMessage(`[{"name":"x"}]`)}, api.CodeUnavailable},
		"microvm":          {api.CreateRequest{MinIsolation: "microvm"}, api.CodeRungUnavailable},
		"min container":    {api.CreateRequest{MinIsolation: "container"}, api.CodeBadRequest},
		"env":              {api.CreateRequest{Env: map[string]string{"A=B": "x"}}, api.CodeBadRequest},
		"long env":         {api.CreateRequest{Env: map[string]string{"A": strings.Repeat("x", 1<<20)}}, api.CodeBadRequest},
	} {
		if _, err := r.Create(t.Context(), tt.req); code(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, req := range map[string]api.CreateRequest{
		"ttl": {TTLSeconds: 61}, "memory": {MemoryMB: 65}, "template": {Template: "other"},
	} {
		if _, err := r.Create(agent, req); code(err) != api.CodePolicyCeiling || err.(*api.Error).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	sb, err := r.Create(agent, api.CreateRequest{Template: "code-interpreter", Metadata: map[string]string{"run_id": "free text"}, Tags: map[string]string{"x": "y"}, MinIsolation: "gvisor", CPU: 1.5, Volumes: json.RawMessage("null")})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Template != "code-interpreter" || sb.TemplateResolved != "host" || sb.TTLSeconds != 60 || sb.Limits.MemoryBytes != 64<<20 ||
		sb.RunID != "" || sb.Metadata["run_id"] != "free text" || sb.Tags["x"] != "y" || sb.ID != sb.SandboxID || sb.Status != "running" ||
		sb.CPU != 2 || sb.MemoryMB != 64 || sb.BootMode != "cold" || sb.BootMS <= 0 || sb.IdleTimeoutSeconds != api.DefaultIdleSeconds || sb.Tenant != "acme" {
		t.Errorf("%+v", sb)
	}
	ttl := 61.0
	if _, err := r.SetLifecycle(agent, sb.ID, api.LifecycleChange{TTLSeconds: &ttl}); code(err) != api.CodePolicyCeiling {
		t.Errorf("beyond the ceiling: %v", err)
	}
	if _, err := r.Exec(agent, sb.ID, api.ExecRequest{Args: []string{"true"}, TimeoutSeconds: 61}, sandbox.Streams{}); code(err) != api.CodeBadRequest {
		t.Errorf("an exec that outlives its sandbox: %v", err)
	}
	short := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Ceiling: &api.Policy{Limits: api.Limits{TimeoutSeconds: 40}}})
	tight, err := r.Create(short, api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for secs, want := range map[float64]string{40: "<nil>", 41: api.CodeBadRequest, api.Unlimited: api.CodeBadRequest} {
		if _, err := r.Exec(short, tight.ID, api.ExecRequest{Args: []string{"true"}, TimeoutSeconds: secs}, sandbox.Streams{}); code(err) != want {
			t.Errorf("%g seconds under a ceiling of 40: %v", secs, err)
		}
	}
	past := 1e-6
	if _, err := r.SetLifecycle(agent, sb.ID, api.LifecycleChange{TTLSeconds: &past}); code(err) != api.CodeBadRequest {
		t.Errorf("a time that has passed: %v", err)
	}
}

func TestSetTags(t *testing.T) {
	r, p := newDurable(t, quick)
	sb, err := r.Create(t.Context(), api.CreateRequest{Session: "s1", Tags: map[string]string{"a": "1", "b": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	one, other := "x", "s2"
	sb, err = r.SetTags(t.Context(), sb.ID, api.MetadataChange{Tags: map[string]*string{"a": nil, "c": &one}})
	if err != nil || len(sb.Tags) != 3 || sb.Tags["b"] != "2" || sb.Tags["c"] != "x" || sb.Tags["session"] != "s1" {
		t.Errorf("%+v, %v", sb.Tags, err)
	}
	for _, v := range []*string{nil, &other} {
		if _, err := r.SetTags(t.Context(), sb.ID, api.MetadataChange{Tags: map[string]*string{"session": v}}); code(err) != api.CodeSessionConflict {
			t.Errorf("session: %v", err)
		}
	}
	if _, err := r.Exec(t.Context(), sb.ID, api.ExecRequest{Cmd: "x", Session: "s2"}, sandbox.Streams{}); code(err) != api.CodeSessionConflict {
		t.Errorf("exec of another session: %v", err)
	}
	if _, err := r.Exec(t.Context(), sb.ID, api.ExecRequest{Args: []string{"true"}, Session: "s1"}, sandbox.Streams{}); err != nil {
		t.Error(err)
	}
	if n := len(slices.DeleteFunc(p.types(sb.ID), func(s string) bool { return s != api.EventSandboxChanged })); n != 1 {
		t.Errorf("%d changes", n)
	}
}

func TestQuotas(t *testing.T) {
	opt := quick
	opt.Budget = 300 << 20
	opt.Quota = sandbox.Quota{Sandboxes: 2, MemoryBytes: 200 << 20}
	opt.Quotas = map[string]sandbox.Quota{"fast": {CreatesPerMinute: 2}}
	r, _ := newDurable(t, opt)
	as := func(tenant string) context.Context {
		return sandbox.As(t.Context(), sandbox.Caller{Tenant: tenant, Actor: "t"})
	}
	make := func(tenant string, mb float64) (string, string) {
		sb, err := r.Create(as(tenant), api.CreateRequest{MemoryMB: mb})
		if err != nil {
			if err.(*api.Error).RetryAfter <= 0 {
				t.Errorf("%v does not say when to ask again", err)
			}
			return "", code(err)
		}
		return sb.ID, ""
	}
	a, _ := make("a", 100)
	if _, c := make("a", 101); c != api.CodeQuota {
		t.Error("memory", c)
	}
	if _, c := make("a", 50); c != "" {
		t.Error(c)
	}
	if _, c := make("a", 32); c != api.CodeQuota {
		t.Error("count", c)
	}
	if _, c := make("b", 151); c != api.CodeNodeFull {
		t.Error("node", c)
	}
	r.Delete(as("a"), a)
	b, c := make("b", 200)
	if c != "" {
		t.Error("after the end", c)
	}
	r.Delete(as("b"), b)
	make("fast", 32)
	make("fast", 32)
	_, err := r.Create(as("fast"), api.CreateRequest{MemoryMB: 32})
	if code(err) != api.CodeRate || err.(*api.Error).RetryAfter < 50 || err.(*api.Error).RetryAfter > 60 {
		t.Errorf("rate: %+v", err)
	}
	if _, err := r.Create(t.Context(), api.CreateRequest{Limits: api.Limits{MemoryBytes: api.Unlimited}}); code(err) != api.CodeQuota {
		t.Errorf("no cap: %v", err)
	}
	r.flaky.StartErr = testkit.ErrFault
	before := r.Totals().MemoryBytes
	r.Create(as("b"), api.CreateRequest{MemoryMB: 100})
	if after := r.Totals().MemoryBytes; after != before {
		t.Errorf("what failed still counts: %d, %d", before, after)
	}
}

// Without a cap of memory a sandbox is let in where its tenant has no quota of
// it, and counts as the usual one.
func TestNoCap(t *testing.T) {
	opt := quick
	opt.Budget = 1100 << 20
	opt.Quotas = map[string]sandbox.Quota{"bounded": {MemoryBytes: 1 << 40}}
	r, _ := newDurable(t, opt)
	req := api.CreateRequest{Limits: api.Limits{MemoryBytes: api.Unlimited}}
	bounded := sandbox.As(t.Context(), sandbox.Caller{Tenant: "bounded", Actor: "t"})
	if _, err := r.Create(bounded, req); code(err) != api.CodeQuota {
		t.Errorf("under a quota: %v", err)
	}
	capped := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t", Ceiling: &api.Policy{Limits: api.Limits{MemoryBytes: 1 << 40}}})
	if _, err := r.Create(capped, req); code(err) != api.CodePolicyCeiling {
		t.Errorf("under a ceiling: %v", err)
	}
	one, err := r.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Totals().MemoryBytes; n != api.DefaultMemoryBytes {
		t.Errorf("it counts as %d", n)
	}
	if _, err := r.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), req); code(err) != api.CodeNodeFull {
		t.Errorf("the third: %v", err)
	}
	r.Delete(t.Context(), one.SandboxID)
	if n := r.Totals().MemoryBytes; n != api.DefaultMemoryBytes {
		t.Errorf("one is left and counts as %d", n)
	}
}

// A guest that says nothing is no sandbox, and costs no others anything.
func TestSilentAtCreate(t *testing.T) {
	r, p := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	r.flaky.Conn = testkit.SilentAfter(0)
	began := time.Now()
	_, err := r.Create(t.Context(), api.CreateRequest{})
	if code(err) != api.CodeGuestSilent || time.Since(began) > 3*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	r.flaky.Conn = func(c net.Conn) net.Conn { return c }
	if n := r.mem.Live(); n != 1 {
		t.Errorf("%d instances", n)
	}
	if got := p.types(""); got[len(got)-1] != api.EventSandboxEnded || len(got) != 4 {
		t.Errorf("events = %q", got)
	}
	if _, out := r.exec(t, id, "echo", "hi"); out != "hi\n" {
		t.Error(out)
	}
}
