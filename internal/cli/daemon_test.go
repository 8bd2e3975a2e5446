package cli_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/store"
	"github.com/bermhq/berm/internal/testkit/shelves"
)

// keeps is a journal that keeps events only.
type keeps struct{ *store.Store }

func (keeps) Save(string, json.RawMessage) error                          { return nil }
func (keeps) Load() (map[string]json.RawMessage, error)                   { return nil, nil }
func (keeps) Drop(string) error                                           { return nil }
func (k keeps) Head() uint64                                              { return k.Store.Head().Seq }
func (keeps) Replay(context.Context, uint64, func(api.Event) error) error { return nil }

// daemon is w with a daemon behind it: engine, store, tokens and the door.
func (w *world) daemon() *world {
	t := w.t
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.Open(st.Bucket("tokens"), st.Append)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := tokens.Bootstrap(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	e := sandbox.New([]backend.Backend{w.mem}, sandbox.Options{Journal: keeps{st}})
	l, err := net.Listen("tcp", "127.0.0.1:0") // a pipe could not be closed by half
	if err != nil {
		t.Fatal(err)
	}
	shelf := shelves.New()
	srv := &http.Server{Handler: server.New(e, server.Options{
		Auth: tokens, Store: st, Heartbeat: 50 * time.Millisecond,
		Shelf: shelf, Builds: &shelves.Builds{Shelf: shelf},
	})}
	go srv.Serve(l)
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
	t.Cleanup(func() {
		srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
		st.Close()
	})
	w.token, w.dial = token, dial
	w.connect = func(ctx context.Context, o cli.ConnectOptions) (*cli.Session, error) {
		token := w.token
		if o.TokenFile != "" {
			var err error
			if token, err = client.ReadToken(o.TokenFile); err != nil {
				return nil, err
			}
		}
		c := client.New(client.Options{Dial: dial, URL: "http://127.0.0.1", Token: token})
		return &cli.Session{Client: c, Close: func() error { c.Close(); return nil }}, nil
	}
	return w
}

// berm is one command line that must succeed without a word on stderr.
func (w *world) berm(args ...string) string {
	w.t.Helper()
	code, out, errs := w.run(w.t.Context(), "", args...)
	if code != 0 || errs != "" {
		w.t.Fatalf("%q: %d %q %q", args, code, out, errs)
	}
	return strings.TrimSuffix(out, "\n")
}

// decoded is the same, of a verb that prints JSON.
func decoded[T any](w *world, args ...string) (v T) {
	w.t.Helper()
	if out := w.berm(args...); json.Unmarshal([]byte(out), &v) != nil {
		w.t.Fatalf("%q: %q", args, out)
	}
	return v
}

func TestNoDaemon(t *testing.T) {
	w := newWorld(t)
	w.connect = func(context.Context, cli.ConnectOptions) (*cli.Session, error) {
		return nil, &client.NoDaemon{Dir: "/s", Err: os.ErrNotExist}
	}
	code, out, errs := w.run(t.Context(), "", "ls")
	if code != 125 || out != "" || errs != "berm: daemon: no daemon is running for /s\ntry: berm serve\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if r := w.json("", "--", "echo", "hi"); r.Stdout != "hi\n" || w.opens != 1 {
		t.Errorf("run without a daemon: %+v", r)
	}
}

func TestLifeOfASandbox(t *testing.T) {
	w := newWorld(t).daemon()
	id := w.berm("create", "--tag", "job=42", "--ttl", "2h", "--memory", "1g", "--timeout", "1m", "--env", "A=b")
	if !api.ValidID(id) {
		t.Fatalf("id %q", id)
	}
	sb := decoded[api.Sandbox](w, "info", "--json", id[:12])
	if sb.SandboxID != id || sb.Tags["job"] != "42" || sb.TTLSeconds != 7200 || sb.Limits.MemoryBytes != 1<<30 {
		t.Errorf("info: %+v", sb)
	}
	other := w.berm("create")
	if out := w.berm("ls", "-q"); len(strings.Fields(out)) != 2 {
		t.Errorf("ls -q: %q", out)
	}
	if out := w.berm("ls", "--tag", "job=42"); !strings.Contains(out, id[:12]) || strings.Contains(out, other[:12]) || !strings.Contains(out, "job=42") {
		t.Errorf("ls --tag: %q", out)
	}
	if l := decoded[[]api.Sandbox](w, "ls", "--json", "--tag", "job=43"); len(l) != 0 {
		t.Errorf("ls --json: %+v", l)
	}
	if out := w.berm("exec", id, "--", "env"); !strings.Contains(out, "A=b\n") {
		t.Errorf("exec env: %q", out)
	}
	if out := w.berm("exec", id, "--env", "A=c", "env"); !strings.Contains(out, "A=c\n") {
		t.Errorf("exec --env: %q", out)
	}
	code, out, _ := w.run(t.Context(), "some input", "exec", "-i", id, "cat")
	if code != 0 || out != "some input" {
		t.Errorf("exec -i: %d %q", code, out)
	}
	if code, _, _ := w.run(t.Context(), "", "exec", id, "false"); code != 1 {
		t.Errorf("exec false: %d", code)
	}
	code, _, errs := w.run(t.Context(), "", "exec", id, "no-such-command")
	if code != 127 || !strings.HasPrefix(errs, "berm: no-such-command: ") {
		t.Errorf("exec no-such-command: %d %q", code, errs)
	}
	code, _, errs = w.run(t.Context(), "", "exec", "--timeout", "200ms", id, "sleep", "60")
	if code != 124 || errs != "berm: timeout: still running after 200ms\ntry: berm exec --timeout 800ms\n" {
		t.Errorf("exec --timeout: %d %q", code, errs)
	}
	if a := decoded[api.ExecAnswer](w, "exec", "--json", id, "--", "echo", "hi"); a.Stdout != "hi\n" || a.Ending != "exit" || a.ExecID == "" {
		t.Errorf("exec --json: %+v", a)
	}

	w.berm("tag", id, "job-", "owner=me")
	if out := w.berm("tag", id); out != "owner=me" {
		t.Errorf("tag: %q", out)
	}
	l := decoded[api.Lifecycle](w, "ttl", "--json", "--idle-timeout", "10m", id, "30m")
	if l.IdleTimeoutSeconds != 600 || l.TTLSeconds < 1800 || l.TTLSeconds > 1900 {
		t.Errorf("ttl: %+v", l)
	}
	w.berm("pause", id)
	if sb := decoded[api.Sandbox](w, "info", "--json", id); sb.State != "paused" {
		t.Errorf("paused: %+v", sb)
	}
	w.berm("resume", id)
	if out := w.berm("exec", id, "echo", "again"); out != "again" {
		t.Errorf("resumed: %q", out)
	}
	top := decoded[api.Top](w, "top", "--json")
	if len(top.Sandboxes) != 2 {
		t.Errorf("top: %+v", top)
	}
	if out := w.berm("top", "--once", "--sort", "name"); !strings.Contains(out, id[:12]) || strings.Contains(out, "\x1b") {
		t.Errorf("top --once: %q", out)
	}
	if out := w.berm("kill", id[:10]); out != id {
		t.Errorf("kill: %q", out)
	}
	if code, _, errs := w.run(t.Context(), "", "exec", id, "true"); code != 125 || !strings.HasPrefix(errs, "berm: ") {
		t.Errorf("exec in what has ended: %d %q", code, errs)
	}
	r := decoded[api.Report](w, "info", "--report", "--json", id)
	if r.Ending != "killed" || len(r.Commands) == 0 {
		t.Errorf("report: %+v", r)
	}
	if out := w.berm("info", "--report", id); !strings.Contains(out, "killed") {
		t.Errorf("report: %q", out)
	}
	if out := w.berm("kill", "--all"); out != other {
		t.Errorf("kill --all: %q", out)
	}
	if out := w.berm("ls", "-a"); !strings.Contains(out, "killed") {
		t.Errorf("ls -a: %q", out)
	}
}

func TestDetached(t *testing.T) {
	w := newWorld(t).daemon()
	id := w.berm("create")
	x := w.berm("exec", "-d", id, "--", "echo", "out")
	if !api.ValidID(x) {
		t.Fatalf("exec -d: %q", x)
	}
	if out := w.berm("attach", x); out != "out" {
		t.Errorf("attach: %q", out)
	}
	if out := w.berm("attach", "--offset", "1", id[:8], x[:8]); out != "ut" {
		t.Errorf("attach --offset: %q", out)
	}
	s := w.berm("exec", "-d", id, "--", "sleep", "60")
	if out := w.berm("ps", id); !strings.Contains(out, s[:12]) || strings.Contains(out, x[:12]) || !strings.Contains(out, "sleep 60") {
		t.Errorf("ps: %q", out)
	}
	if out := w.berm("ps", "-q", "-a"); !strings.Contains(out, s) || !strings.Contains(out, x) {
		t.Errorf("ps -qa: %q", out)
	}
	c := w.berm("exec", "-di", id, "--", "cat")
	code, out, errs := w.run(t.Context(), "input", "attach", "-i", c)
	if code != 0 || out != "input" || errs != "" {
		t.Errorf("attach -i: %d %q %q", code, out, errs)
	}
	w.berm("kill", s)
	code, _, errs = w.run(t.Context(), "", "attach", s)
	if code != 137 || !strings.HasPrefix(errs, "berm: killed: ") {
		t.Errorf("attach what was killed: %d %q", code, errs)
	}
	if xs := decoded[[]api.Exec](w, "ps", "-a", "--json", id); len(xs) != 3 {
		t.Errorf("ps --json: %+v", xs)
	}
}

func TestFiles(t *testing.T) {
	w := newWorld(t).daemon()
	t.Chdir(t.TempDir())
	id := w.berm("create")
	at := func(p string) string { return id[:10] + ":" + p }
	os.MkdirAll("d/sub", 0o755)
	os.WriteFile("d/sub/a.txt", []byte("A"), 0o644)
	os.WriteFile("b.txt", []byte("B"), 0o600)
	w.berm("cp", "b.txt", "d", at(""))
	if out := w.berm("fs", "ls", id); out != "b.txt\nd/" {
		t.Errorf("fs ls: %q", out)
	}
	w.berm("cp", "d/.", at("e"))
	if out := w.berm("fs", "cat", at("e/sub/a.txt")); out != "A" {
		t.Errorf("cp d/.: %q", out)
	}
	w.berm("cp", "b.txt", at("deep/er/c.txt"))
	if e := decoded[api.DirEntry](w, "fs", "stat", "--json", at("deep/er/c.txt")); e.Size != 1 || e.Kind != "file" || e.Perm != 0o600 {
		t.Errorf("stat: %+v", e)
	}
	code, _, errs := w.run(t.Context(), "from stdin", "cp", "-", at("s.txt"))
	if code != 0 {
		t.Errorf("cp -: %d %q", code, errs)
	}
	if out := w.berm("cp", at("s.txt"), "-"); out != "from stdin" {
		t.Errorf("cp to -: %q", out)
	}
	w.berm("cp", at("d"), "back")
	w.berm("cp", at("s.txt"), at("b.txt"), ".")
	for name, want := range map[string]string{"back/sub/a.txt": "A", "s.txt": "from stdin", "b.txt": "B"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
	os.Mkdir("there", 0o755)
	w.berm("cp", at("d"), "there")
	if got, _ := os.ReadFile("there/d/sub/a.txt"); string(got) != "A" {
		t.Errorf("into a folder that is there: %q", got)
	}
	w.berm("fs", "mkdir", at("x/y"))
	w.berm("fs", "mv", at("s.txt"), "x/y/t.txt")
	if out := w.berm("fs", "cat", at("x/y/t.txt")); out != "from stdin" {
		t.Errorf("mv: %q", out)
	}
	code, _, errs = w.run(t.Context(), "", "fs", "rm", at("x"))
	if code != 125 || !strings.Contains(errs, "is a folder\ntry: berm fs rm -r ") {
		t.Errorf("rm of a folder: %d %q", code, errs)
	}
	w.berm("fs", "rm", "-r", at("x"))
	w.berm("fs", "rm", "-f", at("x"))
	code, _, errs = w.run(t.Context(), "", "cp", at("none"), ".")
	if code != 1 || !strings.Contains(errs, "nothing inside matches") {
		t.Errorf("cp of nothing: %d %q", code, errs)
	}
	code, _, errs = w.run(t.Context(), "", "cp", "--limit", "4", at("b.txt"), at("e/sub/a.txt"), at("deep"), "there/")
	if code != 0 {
		t.Errorf("within the limit: %d %q", code, errs)
	}
	code, _, errs = w.run(t.Context(), "", "cp", "--limit", "1", at("b.txt"), at("e/sub/a.txt"), "there/")
	if code != 1 || !strings.Contains(errs, "try: berm cp --limit SIZE\n") {
		t.Errorf("over the limit: %d %q", code, errs)
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t).daemon()
	t.Chdir(t.TempDir())
	os.WriteFile("p.yaml", []byte("ceiling:\n  ttl_seconds: 600\n  limits: {memory_bytes: 134217728}\ndefault:\n  ttl_seconds: 60\n"), 0o644)
	token := w.berm("token", "create", "--label", "ci", "--ttl", "8h", "--policy", "p.yaml")
	os.WriteFile("tok", []byte(token+"\n"), 0o600)
	if out := w.berm("token", "ls"); !strings.Contains(out, token[:12]) || strings.Contains(out, token) || !strings.Contains(out, "ceiling default") {
		t.Errorf("token ls: %q", out)
	}
	sb := decoded[api.Sandbox](w, "--token-file", "tok", "create", "--json")
	if sb.TTLSeconds != 60 || sb.Limits.MemoryBytes > 134217728 {
		t.Errorf("under the policy: %+v", sb)
	}
	code, _, errs := w.run(t.Context(), "", "create", "--token-file", "tok", "--ttl", "1h")
	if code != 125 || !strings.Contains(errs, "ttl") {
		t.Errorf("over the ceiling: %d %q", code, errs)
	}
	code, _, errs = w.run(t.Context(), "", "--token-file", "tok", "token", "ls")
	if code != 125 || !strings.Contains(errs, "role") {
		t.Errorf("an agent lists tokens: %d %q", code, errs)
	}
	w.berm("token", "revoke", token[:12])
	if code, _, errs := w.run(t.Context(), "", "--token-file", "tok", "ls"); code != 125 {
		t.Errorf("revoked: %d %q", code, errs)
	}
	w.berm("kill", "--all", "-q")
}

func TestAudit(t *testing.T) {
	w := newWorld(t).daemon()
	t.Chdir(t.TempDir())
	id := w.berm("create", "--tag", "run_id=r1")
	w.berm("exec", id, "true")
	os.WriteFile("head.json", []byte(w.berm("audit", "head")), 0o644)
	w.berm("kill", id)
	if out := w.berm("events", "--sandbox", id[:9]); !strings.Contains(out, "sandbox.created") || !strings.Contains(out, "exec.started") || !strings.Contains(out, "sandbox.ended") {
		t.Errorf("events: %q", out)
	}
	for i, line := range strings.Split(w.berm("audit", "ls", "--json", "-n", "2"), "\n") {
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != uint64(i+1) {
			t.Errorf("line %d: %q %v", i, line, err)
		}
	}
	if out := w.berm("audit", "verify", "--head", "head.json"); !strings.Contains(out, "whole") {
		t.Errorf("verify: %q", out)
	}
	if v := decoded[api.Verification](w, "audit", "verify", "--json"); !v.OK {
		t.Errorf("verify: %+v", v)
	}
	w.berm("audit", "export", "-o", "log")
	w.connect = nil // from here on without a daemon
	if out := w.berm("audit", "verify", "--head", "head.json", "log"); !strings.Contains(out, "whole") {
		t.Errorf("verify an export: %q", out)
	}
	log, _ := os.ReadFile("log")
	os.WriteFile("log", []byte(strings.Replace(string(log), "sandbox.created", "sandbox.creatad", 1)), 0o644)
	code, out, _ := w.run(t.Context(), "", "audit", "verify", "log")
	if code != 1 || !strings.Contains(out, "NOT WHOLE") {
		t.Errorf("a changed export: %d %q", code, out)
	}
	code, _, errs := w.run(t.Context(), "", "audit", "verify", "--head", "log")
	if code != 125 || !strings.Contains(errs, "is not a head") {
		t.Errorf("a head that is none: %d %q", code, errs)
	}
}

// A run on a daemon is the same run, and its sandbox is bound to it.
func TestRunOnADaemon(t *testing.T) {
	w := newWorld(t).daemon()
	w.open(t.Context(), cli.OpenOptions{}) // is not used below
	w.opens = 0
	t.Chdir(t.TempDir())
	os.WriteFile("in.txt", []byte("x"), 0o644)
	r := w.json("", "--tag", "session=s1", "--in", "in.txt", "--out", "in.txt:out.txt", "--", "echo", "42")
	if r.Stdout != "42\n" || r.ExitCode != 0 || r.Isolation != "gvisor" || !api.ValidID(r.RunID) || len(r.Artifacts) != 1 || r.Tags["session"] != "s1" || w.opens != 0 {
		t.Errorf("report: %+v, opened %d", r, w.opens)
	}
	if code, _, errs := w.run(t.Context(), "", "run", "--timeout", "100ms", "--", "sleep", "60"); code != 124 {
		t.Errorf("timeout: %d %q", code, errs)
	}
	if n := w.mem.Live(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	w.json("", "--no-daemon", "--", "true")
	if w.opens != 1 {
		t.Error("--no-daemon used the daemon")
	}
	const passedBy = "berm: the daemon that is running is not used, and its log will not have this run: "
	w.opens = 0
	if code, _, errs := w.run(t.Context(), "", "run", "--memory", "unlimited", "--", "true"); w.opens != 0 || code != 0 || errs != "" {
		t.Errorf("a run without a memory cap: opened %d, %d %q", w.opens, code, errs)
	}
	connect := w.connect
	w.opens, w.connect = 0, func(context.Context, cli.ConnectOptions) (*cli.Session, error) {
		return nil, &api.Error{Code: api.CodeTokenForbidden, Message: "the daemon is not yours"}
	}
	if _, _, errs := w.run(t.Context(), "", "run", "--", "true"); w.opens != 1 || errs != passedBy+"the daemon is not yours\n" {
		t.Errorf("a daemon of somebody else: %q", errs)
	}
	w.connect = connect
	os.Mkdir("rootfs", 0o755)
	for _, args := range [][]string{{"--template", "./rootfs"}, {"--template", "rootfs"}, {"--template-include", "/opt"}, {"--template-max", "1g"}} {
		w.opens = 0
		_, _, errs := w.run(t.Context(), "", append(append([]string{"run"}, args...), "--", "true")...)
		if w.opens != 1 || !strings.HasPrefix(errs, passedBy+args[0]) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: opened %d, %q", args, w.opens, errs)
		}
		code, _, errs := w.run(t.Context(), "", append(append([]string{"--url", "http://127.0.0.1", "run"}, args...), "--", "true")...)
		if code != 125 || !strings.HasSuffix(errs, "a daemon does not look at it\ntry: berm run --no-daemon\n") {
			t.Errorf("%q on a daemon that was named: %d %q", args, code, errs)
		}
	}
}

// When the process of a run is gone, so is its sandbox.
func TestRunLetsGo(t *testing.T) {
	w := newWorld(t).daemon()
	var conns []net.Conn
	c := client.New(client.Options{URL: "http://127.0.0.1", Token: w.token, Dial: func(ctx context.Context) (net.Conn, error) {
		nc, err := w.dial(ctx)
		conns = append(conns, nc)
		return nc, err
	}})
	sb, _, err := c.CreateBound(t.Context(), api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if out := w.berm("ls", "-q"); out != sb.SandboxID {
		t.Errorf("ls: %q", out)
	}
	for _, nc := range conns {
		nc.Close() // as the kernel does
	}
	for end := time.Now().Add(10 * time.Second); w.mem.Live() > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the sandbox lives on")
		}
	}
}

func TestAskedWrongly(t *testing.T) {
	w := newWorld(t).daemon()
	id := w.berm("create")
	w.berm("create")
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"info"}, "berm: info: needs one argument at least\ntry: berm help info\n"},
		{[]string{"info", "a", "b"}, "berm: info: takes one argument at most\n"},
		{[]string{"ls", "x"}, "berm: ls: takes no arguments\n"},
		{[]string{"ls", "--tga", "x"}, "berm: flag --tga: is not known\ntry: --tag\n"},
		{[]string{"create", "--foo"}, "berm: flag --foo: is not known\ntry: berm help create\n"},
		{[]string{"token", "create", "--foo"}, "berm: flag --foo: is not known\ntry: berm help token create\n"},
		{[]string{"info", "zzz"}, "berm: zzz: is no sandbox\ntry: berm ls\n"},
		{[]string{"info", "s"}, "berm: s: could be any of 2: "},
		{[]string{"info", "../x"}, "berm: ../x: is not the id of a sandbox"},
		{[]string{"exec", id[:9]}, "berm: exec: no command is given\n"},
		{[]string{"exec"}, "berm: exec: no sandbox is named\n"},
		{[]string{"exec", "-t", id, "sh"}, "berm: -t: your input and output are not both a terminal\n"},
		{[]string{"shell", id}, "berm: shell: your input and output are not both a terminal\n"},
		{[]string{"attach", "xyz"}, "berm: xyz: is no command that is known\n"},
		{[]string{"kill"}, "berm: kill: no sandbox is named\n"},
		{[]string{"kill", "--all", id}, "berm: kill: --all and --tag say which"},
		{[]string{"kill", "--signal", "TERM", id[:9]}, "berm: " + id[:9] + ": is not the id of a command"},
		{[]string{"cp", "a", "b"}, "berm: cp: one side is a sandbox, the other this host\n"},
		{[]string{"cp", id + ":a", id + ":b"}, "berm: cp: one side is a sandbox, the other this host\n"},
		{[]string{"cp", id + ":../a", "b"}, "berm: '" + id}, // quoted or not
		{[]string{"cp", "no-such-file", id + ":"}, "berm: no-such-file: no such file or directory\n"},
		{[]string{"ttl", id, "soon"}, "berm: soon: is not a time"},
		{[]string{"tag", id, "x"}, "berm: x: is not K=V"},
		{[]string{"port", id, "http"}, "berm: http: is not a port\n"},
		{[]string{"create", "--ttl", "30"}, "berm: --ttl 30: has no unit\ntry: --ttl 30s\n"},
		{[]string{"token", "create", "--role", "root"}, "berm: --role root: is none of agent, operator, admin"},
		{[]string{"token", "crate"}, "berm: crate: is not a verb of berm token\ntry: berm token create\n"},
		{[]string{"serve", "--listen", "x"}, "berm: --listen x: is not HOST:PORT"},
		{[]string{"serve", "--listen", ":80"}, "berm: --listen :80: would listen everywhere"},
		{[]string{"serve", "--tls-cert", "x"}, "berm: serve: --tls-cert and --tls-key go together\n"},
		{[]string{"help", "audit", "verfy"}, "berm: verfy: is not a verb of berm audit, so there is no help for it\ntry: berm help audit verify\n"},
	} {
		code, out, errs := w.run(t.Context(), "", tt.args...)
		if tt.says == "berm: '"+id {
			tt.says = "berm: " + id + ":../a: has a .. in it\n"
		}
		if code != 125 || out != "" || !strings.HasPrefix(errs, tt.says) {
			t.Errorf("%q: %d %q %q", tt.args, code, out, errs)
		}
	}
	w.berm("kill", "--all", "-q")
}

func TestServeOptions(t *testing.T) {
	w := newWorld(t)
	var got cli.ServeOptions
	w.serve = func(_ context.Context, o cli.ServeOptions) error { got = o; return nil }
	w.berm("serve", "--state", "/s", "--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--config", "c", "--tls-cert", "a", "--tls-key", "b", "--host", "h")
	if got.StateDir != "/s" || len(got.Listen) != 2 || got.Config != "c" || got.TLSCert != "a" || got.TLSKey != "b" || len(got.Hosts) != 1 {
		t.Errorf("%+v", got)
	}
}
