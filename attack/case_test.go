package attack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

func TestCases(t *testing.T) {
	all, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, c := range all {
		if c.Waits != "" {
			continue
		}
		n[c.Family]++
		if c.Drive != "" || c.StandIn != "" {
			continue
		}
		if got := strings.Count(string(c.Files[0].Data), "finish()"); c.wire() != (got == 1) {
			t.Errorf("%s asks the allowed server %d times at its end", c.ID, got)
		}
		if c.Family == exhaustion && len(c.Caps)+len(c.Denied) == 0 && c.Wall != "cpu" && c.Stays == "" {
			t.Errorf("%s names no cap that must be recorded", c.ID)
		}
	}
	for _, f := range Families {
		if f != "api" && n[f] < 3 {
			t.Errorf("family %s has %d cases", f, n[f])
		}
	}
	some, err := Select(all, []string{"credentials", "exhaustion-endless"})
	if err != nil || len(some) < 4 || some[len(some)-1].ID != "exhaustion-endless" {
		t.Errorf("selection: %d, %v", len(some), err)
	}
	if _, err := Select(all, []string{"exhaustion", "nope"}); err == nil {
		t.Error("a name that is none selects something")
	}
}

const good = `id: one-case
family: exhaustion
wall: memory
goal: take more
contained: it gets none
timeout: 3s
memory: 64m
ending: memory timeout
caps: memory

-- main.py --
print("a")
-- more.txt --
-- not a file line
`

func TestParse(t *testing.T) {
	c, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != "one-case" || c.Limits.MemoryBytes != 64<<20 || c.Limits.TimeoutSeconds != 3 || len(c.Endings) != 2 || len(c.Files) != 2 {
		t.Errorf("got %+v", c)
	}
	if string(c.Files[1].Data) != "-- not a file line\n" {
		t.Errorf("second file is %q", c.Files[1].Data)
	}
	for _, tt := range []struct{ name, old, new string }{
		{"no id", "id: one-case\n", ""},
		{"id with a path", "one-case", "../one"},
		{"unknown family", "family: exhaustion", "family: none"},
		{"unknown wall", "wall: memory", "wall: none"},
		{"no such driver", "timeout: 3s", "drive: nobody"},
		{"a link to go without where there is none", "timeout: 3s", "link: none"},
		{"no goal", "goal: take more\n", ""},
		{"empty value", "goal: take more", "goal:"},
		{"no colon", "goal: take more", "goal take more"},
		{"a key twice", "goal: take more\n", "goal: take more\ngoal: take most\n"},
		{"unknown key", "goal:", "gaol: x\ngoal:"},
		{"no such size", "memory: 64m", "memory: 64x"},
		{"negative size", "memory: 64m", "memory: -1m"},
		{"no such time", "timeout: 3s", "timeout: 3"},
		{"too long a time", "timeout: 3s", "timeout: 3h"},
		{"an ending that is no goal", "ending: memory", "ending: host-failure"},
		{"alive only yes", "timeout: 3s", "alive: no"},
		{"file with a path", "-- more.txt --", "-- ../more.txt --"},
		{"file named as the prelude", "-- more.txt --", "-- prelude.py --"},
		{"file twice", "-- more.txt --", "-- main.py --"},
		{"nothing runs it", "-- main.py --", "-- main.c --"},
		{"no program", "-- main.py --\nprint(\"a\")\n-- more.txt --\n-- not a file line\n", ""},
		{"a policy where there is no wire", "timeout: 3s", "allow: example.test"},
		{"file named as the wire's", "-- more.txt --", "-- wire.py --"},
		{"waits with a program", "timeout: 3s", "waits: egress"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(good, tt.old, tt.new, 1)
			if text == good {
				t.Fatal("the change changes nothing")
			}
			if c, err := parse([]byte(text)); err == nil {
				t.Errorf("parsed as %+v", c)
			}
		})
	}
	for _, junk := range []string{"", "\x00\xff", "-- main.py --", strings.Repeat("-- a.py --\n", 3), "id: x\n-- main.py --\n"} {
		if _, err := parse([]byte(junk)); err == nil {
			t.Errorf("%q parses", junk)
		}
	}
}

func TestSinkFindsWhatIsSplit(t *testing.T) {
	text := strings.Repeat("x", 9000) + "secret-of-the-host" + strings.Repeat("y", 9000) + "began 77" + "z"
	for _, chunk := range []int{1, 7, 4096, len(text)} {
		s := newSink([]needle{{"the secret", "secret-of-the-host"}, {"another", "not there"}}, "began 77")
		marks := 0
		s.onMark = func(string) { marks++ }
		for rest := []byte(text); len(rest) > 0; {
			n := min(chunk, len(rest))
			s.Write(bytes.Clone(rest[:n]))
			rest = rest[n:]
		}
		if got := s.leaks("it"); len(got) != 1 || got[0] != "the secret is in it" || marks != 1 || s.bytes != int64(len(text)) {
			t.Errorf("chunks of %d: %v, %d marks, %d bytes", chunk, got, marks, s.bytes)
		}
		if len(s.head) != sinkHead || len(s.tail) >= s.reach {
			t.Errorf("it keeps %d and %d bytes", len(s.head), len(s.tail))
		}
	}
}

func TestScanArtifacts(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	needles := []needle{{"the secret", "s3cr3t"}}
	put("sub/fine.txt", "plain", 0o644)
	if n, wrong := scanArtifacts(needles, dir, nil); n != 1 || len(wrong) != 0 {
		t.Errorf("%d, %v", n, wrong)
	}
	put("leak.txt", "a s3cr3t", 0o644)
	put("suid", "x", 0o755|os.ModeSetuid)
	put("b\x1bad", "x", 0o644)
	put("re/.GIT/config", "x", 0o644)
	for _, name := range []string{"HEAD", "objects/x", "refs/x"} {
		put("bare/"+name, "x", 0o644)
	}
	put(strings.Repeat("d/", 64)+"f", "x", 0o644)
	put("one", "x", 0o644)
	if err := os.Link(filepath.Join(dir, "one"), filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	trap := filepath.Join(dir, "trap")
	if err := os.Symlink("/etc/passwd", trap); err != nil {
		t.Fatal(err)
	}
	_, wrong := scanArtifacts(needles, dir, []string{trap})
	text := strings.Join(wrong, "|")
	for _, want := range []string{"the secret", "suid", `"link"`, `"b\x1bad" has a name that steers`, ".GIT", "a repository", "too deep", `"one" is one file`} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing is said of %s: %s", want, text)
		}
	}
	if strings.Contains(text, "fine") || len(wrong) != 9 || len(dots(dir)) != 1 || dotsAsked([]string{"a/*"}) || !dotsAsked([]string{"a/.x"}) {
		t.Errorf("%d: %v %v", len(wrong), wrong, dots(dir))
	}
}

func TestPlantingLeavesNothing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("GH_TOKEN", "mine")
	own := filepath.Join(home, ".netrc")
	if err := os.WriteFile(own, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := plant()
	if err != nil {
		t.Fatal(err)
	}
	l, err := setLure(p)
	if err != nil {
		p.uproot()
		t.Fatal(err)
	}
	if len(p.files) < 9 || len(p.touched()) > 0 || os.Getenv("BERM_CANARY") == "" || os.Getenv("GH_TOKEN") != "mine" {
		t.Errorf("%d files, touched %v", len(p.files), p.touched())
	}
	values := map[string]bool{}
	for _, n := range p.needles {
		values[n.value] = true
	}
	if len(values) < len(p.files)+4 || strings.Contains(strings.Join(args(p), " "), p.needles[0].value) {
		t.Error("values are not one per place, or are told to programs")
	}
	if err := os.WriteFile(p.files[0].path, []byte("altered"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := p.touched(); len(got) != 1 {
		t.Errorf("an altered file goes unseen: %v", got)
	}
	l.close()
	p.uproot()
	os.Remove(p.files[0].path) // somebody else's now, so it was left
	left, _ := filepath.Glob("/tmp/" + p.word + "*")
	entries, _ := os.ReadDir(home)
	if b, _ := os.ReadFile(own); len(entries) != 1 || string(b) != "mine" || os.Getenv("BERM_CANARY") != "" || len(left) > 0 {
		t.Errorf("left: %v %v", entries, left)
	}
}

func args(p *planting) []string { return p.holder.Args }

func TestUntrueNeedsTheContract(t *testing.T) {
	c := testCase(api.EndProcesses, nil)
	if got := untrue(c, true, api.ExecResult{Ending: api.EndProcesses, ExitCode: 123}); len(got) != 0 {
		t.Errorf("the contract's own code is called untrue: %v", got)
	}
}

func TestTook(t *testing.T) {
	out := "began x\ntook 12 ms: a: done\n took 9 ms: no\ntook 3000 ms: b\ntook 99999999 ms: c\nthey took 3 ms: d\n"
	if got, slowest := took([]byte(out)); slowest != "b" || len(got) != 2 || got[0] != 12*time.Millisecond || got[1] != 3*time.Second {
		t.Errorf("got %v", got)
	}
}

func TestPolicyOf(t *testing.T) {
	doc, names, err := policyOf(Case{Allow: []string{"private.test:8080"}})
	want := `[{"allow":"example.test:8080"},{"allow":"example.test:8443"},{"allow":"*.wild.test:8080"},{"allow":"private.test:8080"}]`
	if err != nil || string(doc) != want || names[len(names)-1] != "private.test" {
		t.Errorf("%s %v %v", doc, names, err)
	}
}

// TestWireNeedsNamespaces: whoever cannot have them is told, case by case.
func TestWireNeedsNamespaces(t *testing.T) {
	rep, err := Run(t.Context(), Options{Only: []string{"egress-ports4", "egress-icmp"}, Open: func(context.Context, bool) (*Session, error) {
		t.Error("a session was opened")
		return nil, errors.New("no")
	}})
	if err != nil || rep.Summary.NotApplicable != 2 || rep.Cases[0].Evidence == "" {
		t.Errorf("%+v, %v", rep, err)
	}
}

// TestWireEnds: a world that ends early leaves no case contained.
func TestWireEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it no namespaces are made")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost { // whether caps hold here is asked with a sandbox
			w.WriteHeader(http.StatusCreated)
		}
		io.WriteString(w, `{"sandbox_id":"s00000000000000000000000000000001"}`)
	}))
	defer srv.Close()
	rep, err := Run(t.Context(), Options{Only: []string{"egress-ports4", "egress-icmp"}, Open: func(context.Context, bool) (*Session, error) {
		return &Session{Client: client.New(client.Options{URL: srv.URL}), StateDir: t.TempDir(), Close: func() error { return nil }}, nil
	},
		Again: func(ctx context.Context, only []string) *exec.Cmd {
			return exec.CommandContext(ctx, "sh", "-c", `echo '{"ended":{"id":"egress-icmp","family":"egress","verdict":"contained"}}' >&3; echo why >&2; exit 3`)
		}})
	if err != nil || rep.Summary.Contained != 1 || rep.Summary.Inconclusive != 1 || !strings.Contains(rep.Cases[1].Evidence, "why") {
		t.Errorf("%+v, %v", rep, err)
	}
}

// TestNotHeld: where caps do not hold nothing is attacked, and no way out is named
// that would let go of them.
func TestNotHeld(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		io.WriteString(w, `{"code":"`+api.CodeCapUnenforceable+`","error":"memory: no cgroup","hint":"berm run --memory=unlimited"}`)
	}))
	defer srv.Close()
	err := held(t.Context(), &Session{Client: client.New(client.Options{URL: srv.URL})}, "")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeCapUnenforceable || strings.Contains(e.Hint, "unlimited") || !strings.Contains(e.Message, "no cgroup") {
		t.Errorf("%v", err)
	}
}

// TestShortIsWhole: no wall is without a case in the short run.
func TestShortIsWhole(t *testing.T) {
	all, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	short := map[string]bool{}
	for _, c := range all {
		short[c.Wall] = short[c.Wall] || !c.Long
	}
	for wall := range Walls {
		if !short[wall] {
			t.Errorf("wall %s is attacked in the long run only", wall)
		}
	}
}
