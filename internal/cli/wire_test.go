package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/testkit"
)

// wired is w with a wire in front of its server: the rules that arrive are kept,
// and end is what the wire says of each sandbox.
func (w *world) wired(end api.EndReport) (*world, *api.CreateRequest) {
	asked := new(api.CreateRequest)
	return w.with(func(ctx context.Context, o cli.OpenOptions) (*cli.Session, error) {
		w.opened = o
		w.opens++
		e := sandbox.New([]backend.Backend{w.flaky}, sandbox.Options{})
		inner := server.New(e, server.Options{})
		c := client.New(client.Options{Dial: testkit.Serve(w.t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost && r.URL.Path == "/v1/sandboxes":
				json.NewDecoder(r.Body).Decode(asked)
				plain := *asked
				plain.Egress, plain.Learn = nil, false
				b, _ := json.Marshal(plain)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			case r.Method == http.MethodDelete:
				inner.ServeHTTP(nowhere{http.Header{}}, r)
				rw.Header().Set("Content-Type", "application/json")
				json.NewEncoder(rw).Encode(end)
				return
			}
			inner.ServeHTTP(rw, r)
		}))})
		return &cli.Session{Client: c, Template: "host", Close: func() error {
			c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return e.Close(ctx)
		}}, nil
	}), asked
}

type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

func TestRunWireFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	os.WriteFile("p.yaml", []byte("egress:\n  - deny: bad.test\n  - allow: \"*.test:443\"\n    methods: [GET]\n    uses: 2\nlimits: {memory_bytes: 67108864, timeout_seconds: 20}\nttl_seconds: 600\n"), 0o644)
	os.WriteFile("p.json", []byte(`{"egress": []}`), 0o644)
	os.WriteFile("limits.yaml", []byte("limits: {pids: 32}\n"), 0o644)
	for _, tt := range []struct {
		name    string
		args    []string
		stdin   string
		egress  string // "": no link
		learn   bool
		limits  api.Limits
		presets []string
	}{
		{name: "nothing"},
		{name: "allow", args: []string{"--allow", "a.test", "--allow=10.0.0.0/8:80"}, egress: `[{"allow":"a.test"},{"allow":"10.0.0.0/8:80"}]`},
		{name: "a rule", args: []string{"--allow", `{"allow":"a.test:443","bytes":"10m","sni":"any"}`, "--allow", "b.test", "--allow", `{"allow":"preset:npm","uses":1}`},
			egress: `[{"allow":"a.test:443","bytes":"10m","sni":"any"},{"allow":"b.test"},{"allow":"preset:npm","uses":1}]`, presets: []string{"npm"}},
		{name: "presets", args: []string{"--allow", "preset:pip", "--allow", "preset:npm", "--allow", "preset:pip"},
			egress: `[{"allow":"preset:pip"},{"allow":"preset:npm"},{"allow":"preset:pip"}]`, presets: []string{"pip", "npm"}},
		{name: "learn", args: []string{"--learn"}, egress: `[]`, learn: true},
		{name: "a document", args: []string{"--policy", "p.yaml"}, egress: `[{"deny":"bad.test"},{"allow":"*.test:443","methods":["GET"],"uses":2}]`,
			limits: api.Limits{MemoryBytes: 64 << 20, TimeoutSeconds: 20}},
		{name: "flags win", args: []string{"--policy", "p.yaml", "--memory", "32m"}, egress: `[{"deny":"bad.test"},{"allow":"*.test:443","methods":["GET"],"uses":2}]`,
			limits: api.Limits{MemoryBytes: 32 << 20, TimeoutSeconds: 20}},
		{name: "both", args: []string{"--policy", "p.yaml", "--allow", "bad.test"}, egress: `[{"allow":"bad.test"},{"deny":"bad.test"},{"allow":"*.test:443","methods":["GET"],"uses":2}]`,
			limits: api.Limits{MemoryBytes: 64 << 20, TimeoutSeconds: 20}},
		{name: "JSON, and nothing allowed", args: []string{"--policy", "p.json"}, egress: `[]`},
		{name: "limits only", args: []string{"--policy", "limits.yaml"}, limits: api.Limits{Pids: 32}},
		{name: "limits to learn with", args: []string{"--policy", "limits.yaml", "--learn"}, egress: `[]`, learn: true, limits: api.Limits{Pids: 32}},
		{name: "standard input", args: []string{"--policy", "-"}, stdin: "egress: [{allow: 192.0.2.1}]", egress: `[{"allow":"192.0.2.1"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, asked := newWorld(t).wired(api.EndReport{})
			code, _, errs := w.run(t.Context(), tt.stdin, slices.Concat([]string{"run"}, tt.args, []string{"--", "true"})...)
			if code != 0 {
				t.Fatalf("%d, %q", code, errs)
			}
			if string(asked.Egress) != sorted(tt.egress) || asked.Learn != tt.learn || asked.Limits != tt.limits {
				t.Errorf("asked for %s, %t, %+v", asked.Egress, asked.Learn, asked.Limits)
			}
			if o := w.opened; o.Link != (tt.egress != "") || !slices.Equal(o.Presets, tt.presets) || *o.Only != tt.limits {
				t.Errorf("opened with %t, %q, %+v", o.Link, o.Presets, *o.Only)
			}
		})
	}
}

// sorted is a document as this program writes it.
func sorted(doc string) string {
	var v any
	if json.Unmarshal([]byte(doc), &v) != nil {
		return doc
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// A document that is not understood, and flags that contradict each other, are
// refused before anything is opened.
func TestWireRefusals(t *testing.T) {
	for _, tt := range []struct {
		args []string
		file string
		says string
	}{
		{[]string{"--allow", ""}, "", "--allow '': is empty"},
		{[]string{"--allow", "{allow: a.test}"}, "", "--allow '{allow: a.test}': begins as a rule and is no JSON object"},
		{[]string{"--allow", `{"allow":"a.test"} {}`}, "", "is no JSON object"},
		{[]string{"--allow", `{"deny":"a.test"}`}, "", "is a rule that does not allow\ntry: --policy FILE"},
		{[]string{"--learn", "--allow", "a.test"}, "", "--learn: lets nothing through, to see all that is wanted, so it cannot go with --allow\n"},
		{[]string{"--learn", "--policy", "f"}, "egress: []", "--learn: lets nothing through"},
		{[]string{"--policy", "none.yaml"}, "", "--policy none.yaml: no such file"},
		{[]string{"--policy", "f"}, "", "--policy f: holds no policy"},
		{[]string{"--policy", "f"}, "# nothing\n", "holds no policy"},
		{[]string{"--policy", "f"}, "- allow: a", "line 1: is not a table of keys"},
		{[]string{"--policy", "f"}, "limits: {}\negres: []\n", `line 2: "egres" is not a key of the document; did you mean egress?`},
		{[]string{"--policy", "f"}, "egress:\n  - alow: a\n", `line 2: "alow" is not a key of a rule; did you mean allow?`},
		{[]string{"--policy", "f"}, "limits:\n  memory: 1g\n", `line 2: "memory" is not a key of limits; they are: timeout_seconds, memory_bytes`},
		{[]string{"--policy", "f"}, "limits:\n  pids: many\n", "line 2: limits.pids is a string, which it cannot be"},
		{[]string{"--policy", "f"}, "egress:\n", "line 1: egress is not a list of rules; [] is a link"},
		{[]string{"--policy", "f"}, "egress: [a.test]\n", "line 1: a rule is not a table of keys; they are: allow, deny"},
		{[]string{"--policy", "f"}, "egress:\n - allow: *.test\n", `(put a target that starts with a star in quotes: "*.example.test")`},
		{[]string{"--policy", "f"}, "egress: []\negress: []\n", "already defined"},
		{[]string{"--policy", "f"}, "egress: []\n---\nlimits: {}\n", "holds more than one document"},
		{[]string{"--policy", "f"}, "templates: [host]\n", "line 1: templates is for the ceiling of a token"},
		{[]string{"--policy", "f"}, "1: 2\n", `line 1: "1" is not a key`},
		{[]string{"--policy", "f"}, "limits: {}\n#" + strings.Repeat("x", 1<<20), "is longer than 1m"},
		{[]string{"--policy", "-", "--stdin"}, "", "--policy -: takes all of standard input"},
	} {
		t.Chdir(t.TempDir())
		os.WriteFile("f", []byte(tt.file), 0o644)
		w := newWorld(t)
		for _, verb := range []string{"run", "create"} {
			args := append([]string{verb}, tt.args...)
			if verb == "run" {
				args = append(args, "--", "true")
			} else if slices.Contains(args, "--stdin") {
				continue
			} else {
				w = newWorld(t).daemon()
			}
			code, _, errs := w.run(t.Context(), "", args...)
			if code != 125 || !strings.HasPrefix(errs, "berm: ") || !strings.Contains(errs, tt.says) || !strings.Contains(errs, "\ntry: ") || w.opens != 0 {
				t.Errorf("%q, %.60q: %d, %q, opened %d; want %q", args, tt.file, code, errs, w.opens, tt.says)
			}
		}
	}
	w := newWorld(t)
	if code, _, errs := w.run(t.Context(), "print(1)", "run", "--policy", "-", "-"); code != 125 || !strings.Contains(errs, "no program in it") {
		t.Errorf("%d, %q", code, errs)
	}
}

func TestRunTellsDenied(t *testing.T) {
	denied := func(n int) (out []api.Denial) {
		for i := range n {
			out = append(out, api.Denial{Kind: "tcp", Target: string(rune('a'+i)) + ".test:443", Reason: "nothing allows it", Fix: string(rune('a'+i)) + ".test:443"})
		}
		return out
	}
	for _, tt := range []struct {
		name string
		end  api.EndReport
		args []string
		want string // stderr
	}{
		{"nothing", api.EndReport{}, nil, ""},
		{"one", api.EndReport{Denied: denied(1)}, nil, "berm: denied: a.test:443: nothing allows it\ntry: --allow a.test:443\n"},
		{"harmless", api.EndReport{Denied: []api.Denial{{Target: "\x1b[2Jx\n", Reason: "a\u202eb", Fix: "\x1b]0;x\a"}}}, nil,
			"berm: denied: \\x1b[2Jx\\x0a: a\\u202eb; without :PORT the rule is for every port, and --learn says which one it wants\ntry: --allow '\\x1b]0;x\\x07'\n"},
		{"a name, before any port", api.EndReport{Denied: []api.Denial{{Target: "a.test", Reason: "nothing allows a.test", Fix: "a.test"}}}, nil,
			"berm: denied: a.test: nothing allows a.test; without :PORT the rule is for every port, and --learn says which one it wants\ntry: --allow a.test\n"},
		{"inward", api.EndReport{Denied: []api.Denial{{Target: "x", Reason: "r", Fix: "169.254.169.254:80"}, {Target: "y", Reason: "r", Fix: "[fd00::1]:80"},
			{Target: "z", Reason: "r", Fix: `{"allow":"10.0.0.1:53","quic":true}`}, {Target: "p", Reason: "r", Fix: "192.0.2.1"}}}, nil,
			"berm: denied: x: r; it is link-local (metadata), so allow it only if you mean it\ntry: --allow 169.254.169.254:80\n" +
				"berm: denied: y: r; it is private, so allow it only if you mean it\ntry: --allow '[fd00::1]:80'\n" +
				"berm: denied: z: r; it is private, so allow it only if you mean it\ntry: --allow '{\"allow\":\"10.0.0.1:53\",\"quic\":true}'\n" +
				"berm: denied: p: r\ntry: --allow 192.0.2.1\n"},
		{"no fix, and a long one", api.EndReport{Denied: []api.Denial{{Target: "a", Reason: "r"}, {Target: "b", Reason: "r", Fix: `{"allow": "b:1", "sni": "any"}`}}}, nil,
			"berm: denied: a: r\nberm: denied: b: r\ntry: --allow '{\"allow\": \"b:1\", \"sni\": \"any\"}'\n"},
		{"many", api.EndReport{Denied: denied(8)}, nil, "berm: denied: and 3 more; --json has them all\n"},
		{"many, and more than are kept", api.EndReport{Denied: denied(8), DeniedTruncated: true}, nil, "berm: denied: and 3 more, and others after that; --json has the first 8\n"},
		{"learnt inward", api.EndReport{Wanted: []string{"169.254.169.254:80", "a.test:80", "[::1]:80"}}, []string{"--learn"},
			"# what it tried to reach; as a file it is for --policy\negress:\n  - allow: \"a.test:80\"\n" +
				"  # 169.254.169.254:80 is link-local (metadata): allow it by hand only if you mean it\n  # [::1]:80 is loopback: allow it by hand only if you mean it\n"},
		{"learnt inward only", api.EndReport{Wanted: []string{"10.0.0.1:80"}}, []string{"--learn"},
			"# what it tried to reach; as a file it is for --policy\negress: []\n  # 10.0.0.1:80 is private: allow it by hand only if you mean it\n"},
		{"learnt", api.EndReport{Denied: denied(2), Wanted: []string{"a.test:443", "b\x1b.test"}}, []string{"--learn"},
			"# what it tried to reach; as a file it is for --policy\negress:\n  - allow: \"a.test:443\"\n  - allow: \"b .test\"\n"},
		{"faults", api.EndReport{Faults: []string{"a.test: could not be resolved: no name server answered", "[2001:db8::1]:443: could not be reached: timeout"}}, nil,
			"berm: a.test: allowed, but could not be resolved: no name server answered\nberm: [2001:db8::1]:443: allowed, but could not be reached: timeout\n"},
		{"learnt nothing", api.EndReport{}, []string{"--learn"}, "# it tried to reach nothing: it needs no --allow\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _ := newWorld(t).wired(tt.end)
			code, _, errs := w.run(t.Context(), "", slices.Concat([]string{"run"}, tt.args, []string{"--", "true"})...)
			if code != 0 || errs != tt.want && !(strings.HasPrefix(tt.name, "many") && strings.HasSuffix(errs, tt.want) && strings.Count(errs, "\n") == 11) {
				t.Errorf("%d, %q; want %q", code, errs, tt.want)
			}
		})
	}
	w, _ := newWorld(t).wired(api.EndReport{Denied: denied(8), DeniedTruncated: true, Hosts: []string{"h.test:80"}, Wanted: []string{"a.test:443"}})
	code, out, errs := w.run(t.Context(), "", "run", "--learn", "--json", "--", "true")
	var r api.RunReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || errs != "" || len(r.Denied) != 8 || !r.DeniedTruncated || !slices.Equal(r.Hosts, []string{"h.test:80"}) ||
		!slices.Equal(r.Wanted, []string{"a.test:443"}) {
		t.Errorf("%d, %v, %q, %+v", code, err, errs, r)
	}
}

func TestEgressFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	os.WriteFile("p.yaml", []byte("egress: [{allow: a.test}]\n"), 0o644)
	os.WriteFile("more.yaml", []byte("egress: [{allow: a.test}]\nlimits: {pids: 3}\n"), 0o644)
	os.WriteFile("less.yaml", []byte("ttl_seconds: 3\n"), 0o644)
	os.WriteFile("empty.yaml", []byte("{}\n"), 0o644)
	state := api.EgressState{Link: true, Egress: json.RawMessage(`[{"allow":"a\u001b.test"}]`), EgressBytes: 2048, Hosts: []string{"a.test:443"},
		Denied: []api.Denial{{Kind: "dns", Target: "evil\x1b.test", Reason: "nothing allows it", Fix: "evil.test"}}}
	for _, tt := range []struct {
		args  []string
		code  int
		asked string // of a change
		says  string // in what is printed
	}{
		{nil, 0, "", `{"allow":"a\u001b.test"}`},
		{nil, 0, "", `evil\x1b.test`},
		{[]string{"--json"}, 0, "", `"egress_bytes":2048`},
		{[]string{"--none"}, 0, `[]`, ""},
		{[]string{"--allow", "b.test"}, 0, `[{"allow":"b.test"}]`, ""},
		{[]string{"--policy", "p.yaml", "--json"}, 0, `[{"allow":"a.test"}]`, `"link":true`},
		{[]string{"--none", "--allow", "b.test"}, 125, "", "--none: lets nothing through"},
		{[]string{"--policy", "more.yaml"}, 125, "", "has more than egress"},
		{[]string{"--policy", "less.yaml"}, 125, "", "has more than egress"},
		{[]string{"--policy", "empty.yaml"}, 125, "", "has no egress"},
		{[]string{"--learn"}, 125, "", "flag --learn: is not known"},
	} {
		id, asked := api.NewID(api.KindSandbox), ""
		w := newWorld(t)
		c := client.New(client.Options{Dial: testkit.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/sandboxes/"+id+"/egress" {
				t.Errorf("asked %s %s", r.Method, r.URL.Path)
			}
			if r.Method == http.MethodPatch {
				var ch api.EgressChange
				json.NewDecoder(r.Body).Decode(&ch)
				asked = string(ch.Egress)
			}
			rw.Header().Set("Content-Type", "application/json")
			json.NewEncoder(rw).Encode(state)
		}))})
		w.connect = func(context.Context, cli.ConnectOptions) (*cli.Session, error) {
			return &cli.Session{Client: c, Close: func() error { c.Close(); return nil }}, nil
		}
		code, out, errs := w.run(t.Context(), "", slices.Concat([]string{"egress"}, tt.args, []string{id})...)
		if code != tt.code || asked != tt.asked || !strings.Contains(out+errs, tt.says) || strings.Contains(out, "\x1b") {
			t.Errorf("%q: %d, asked %q, %q %q", tt.args, code, asked, out, errs)
		}
	}
}

func TestHelpPolicy(t *testing.T) {
	w := newWorld(t)
	code, out, errs := w.run(t.Context(), "", "help", "policy")
	if code != 0 || !strings.Contains(out, "The document, YAML or JSON") || errs != "" {
		t.Errorf("%d, %q", code, errs)
	}
	_, doc, _ := strings.Cut(out, "The document, YAML or JSON\n")
	doc, _, _ = strings.Cut(doc, "\n\n")
	lines := strings.Split(doc, "\n")
	for i, line := range lines { // without what the page says of each line, in a column of its own
		lines[i] = line[:min(39, len(line))]
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("p.yaml", []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	w, asked := newWorld(t).wired(api.EndReport{})
	if code, _, errs := w.run(t.Context(), "", "run", "--policy", "p.yaml", "--", "true"); code != 0 {
		t.Fatalf("the example of the page: %d, %q\n%s", code, errs, strings.Join(lines, "\n"))
	}
	e, err := policy.ParseEgress(asked.Egress, time.Now(), func(string) (policy.Preset, error) {
		return policy.Preset{Hosts: []string{"packages.example.com:443"}}, nil
	})
	if err != nil || len(e.Rules) != 6 || asked.Limits.MemoryBytes == 0 {
		t.Errorf("the example of the page: %v, %+v", err, e)
	}
	w = newWorld(t)
	if code, _, errs = w.run(t.Context(), "", "help", "polcy"); code != 125 || !strings.Contains(errs, "try: berm help policy\n") {
		t.Errorf("%d, %q", code, errs)
	}
}
