package attack

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// fine is what a contained case looks like.
func fine(c Case) Observation {
	return Observation{Began: true, Ended: true, Bytes: 10, Said: "began", Elapsed: time.Second, Looked: 3, CanLook: true,
		Result: &api.ExecResult{Ending: c.Endings[0], ExitCode: map[string]int{api.EndTimeout: 124, api.EndMemory: 137, api.EndProcesses: 123}[c.Endings[0]]},
		Tasks:  10, Memory: 1 << 20, MemorySlack: 1 << 30, DiskSlack: 1 << 30, CapsHit: c.Caps, Denied: c.Denied}
}

func testCase(ending string, change func(*Case)) Case {
	c := Case{ID: "x", Family: "exhaustion", Endings: []string{ending}, Limits: api.Limits{TimeoutSeconds: 5},
		HostTasks: 100, HostMemory: 64 << 20, HostDisk: 64 << 20}
	if change != nil {
		change(&c)
	}
	return c
}

func TestJudge(t *testing.T) {
	exit := testCase(api.EndExit, nil)
	memory := testCase(api.EndMemory, func(c *Case) { c.Caps = []string{api.CapMemory} })
	links := testCase(api.EndExit, func(c *Case) { c.Out, c.Denied = []string{"*"}, []string{"out.symlink"} })
	alive := testCase(api.EndExit, func(c *Case) { c.Exit, c.Alive = 37, true })
	wire := testCase(api.EndExit, func(c *Case) { c.Family, c.Denied = egress, []string{"udp", "no-rule|address"} })
	spin := testCase(api.EndExit, func(c *Case) { c.HostCPUs = 0.5 })
	slow := &Neighbour{Samples: 20, AloneP50MS: 10, P50MS: 1500, P99MS: 3000, MaxMS: 3000}
	for _, tt := range []struct {
		name   string
		c      Case
		change func(*Observation)
		want   string
		seen   string // "", "yes", "no"
		word   string // in the evidence
	}{
		{"the wire held", wire, func(o *Observation) { o.Denied = []string{"address", "udp"} }, Contained, "yes", "recorded: address, udp"},
		{"the wire held, and nobody saw all of it", wire, func(o *Observation) { o.Denied = []string{"address"} }, Contained, "no", "not recorded: udp"},
		{"a canary outside was reached", wire, func(o *Observation) { o.Calls = map[string]int{"TCP to 10.9.8.7:80": 1} }, Breached, "no", "10.9.8.7:80"},
		{"what is allowed was not reached", wire, func(o *Observation) { o.Cut = []string{"example.test over IPv6"} }, Inconclusive, "", "over IPv6"},
		{"denials hang", wire, func(o *Observation) { o.Took = []time.Duration{1, 2 * time.Second, 2 * time.Second} }, Breached, "no", "hangs"},
		{"one denial hangs", wire, func(o *Observation) { o.Took = []time.Duration{1, 1, 4 * time.Second} }, Breached, "no", "hangs"},
		{"one denial is slow", wire, func(o *Observation) {
			o.Took, o.Denied = []time.Duration{1, 1, 2 * time.Second}, []string{"udp", "no-rule"}
		}, Contained, "yes", "3 attempts"},
		{"no world can be built", wire, func(o *Observation) { *o = Observation{Unfit: "needs root"} }, NotApplicable, "", "root"},
		{"as it should be", exit, nil, Contained, "", "nothing left behind"},
		{"a cap that held", memory, nil, Contained, "yes", "caps_hit memory"},
		{"links refused", links, nil, Contained, "yes", "out.symlink"},
		{"waits", Case{ID: "x", Waits: "egress"}, nil, NotApplicable, "", "egress"},

		{"a canary came out", exit, func(o *Observation) { o.Leaks = []string{"the variable X is in its output"} }, Breached, "", "variable X"},
		{"a canary, and the program lies that it never ran", exit, func(o *Observation) { o.Began, o.Leaks = false, []string{"key"} }, Breached, "", "key"},
		{"a planted file changed", exit, func(o *Observation) { o.Touched = []string{"/tmp/c was altered"} }, Breached, "", "altered"},
		{"a canary server was called", exit, func(o *Observation) { o.Calls = map[string]int{"the TCP server": 2} }, Breached, "", "called 2 times"},
		{"something is left", exit, func(o *Observation) { o.Left = []string{"new cgroup: berm-s1"} }, Breached, "", "new cgroup"},
		{"a wall is missing", exit, func(o *Observation) { o.Loose = []string{"process 1 has no system call filter"} }, Breached, "", "filter"},
		{"an artifact beside its folder", links, func(o *Observation) { o.Misplaced = []string{"came out as Lrwxrwxrwx"} }, Breached, "yes", "came out"},
		{"too many tasks on the host", exit, func(o *Observation) { o.Tasks = 101 }, Breached, "", "101 tasks"},
		{"too much memory on the host", memory, func(o *Observation) { o.Memory = 65 << 20 }, Breached, "yes", "host memory"},
		{"too much disk on the host", exit, func(o *Observation) { o.Disk = 65 << 20 }, Breached, "", "host disk"},
		{"it ran for too long", exit, func(o *Observation) { o.Elapsed = 7100 * time.Millisecond }, Breached, "", "7.1 s"},
		{"at the edge of time", exit, func(o *Observation) { o.Elapsed = 6900 * time.Millisecond }, Contained, "", ""},
		{"the ending lies", memory, func(o *Observation) { o.Result.Ending, o.Result.ExitCode = api.EndExit, 0 }, Breached, "yes", `ended by "exit"`},
		{"the ending is a host failure", exit, func(o *Observation) { o.Result.Ending, o.Result.Reason = api.EndHostFailure, "gone\x1b[2J" }, Breached, "", "host-failure"},
		{"the exit code lies", memory, func(o *Observation) { o.Result.ExitCode = 1 }, Breached, "yes", "exit code 1"},
		{"the exit code was forged", alive, func(o *Observation) { o.Result.ExitCode = 0 }, Breached, "", "not 37"},
		{"the sandbox went deaf", alive, func(o *Observation) { o.Result.ExitCode, o.Deaf = 37, "broken pipe" }, Breached, "", "no longer serves"},

		{"it took more than its share", spin, func(o *Observation) { o.CPUs = 0.51 }, Breached, "", "0.51 processors"},
		{"its share", spin, func(o *Observation) { o.CPUs = 0.49 }, Contained, "", "0.49 processors"},
		{"its share was not seen", spin, func(o *Observation) { o.CPUs = -1 }, Inconclusive, "", "not seen"},
		{"descriptors of Berm's", exit, func(o *Observation) { o.Serving.Descriptors = 513 }, Breached, "", "513 descriptors"},
		{"memory of Berm's", exit, func(o *Observation) { o.Serving.Memory = 385 << 20 }, Breached, "", "385 MiB"},
		{"Berm's own within bounds", exit, func(o *Observation) { o.Serving = Serving{2, 512, 384 << 20} }, Contained, "", "512 descriptors"},
		{"more came out than may", links, func(o *Observation) { o.Brought = maxOut + 1 }, Breached, "yes", "bytes came out"},
		{"as much came out as may", links, func(o *Observation) { o.Brought = maxOut }, Contained, "yes", "of 67108864 bytes"},
		{"a neighbour was not served", exit, func(o *Observation) { o.Neighbour, o.Unserved = slow, []string{"deadline\x1b[2J"} }, Breached, "", "not served 1 times of 20"},
		{"a neighbour is slow, an honest program does not slow it", exit, func(o *Observation) { o.Neighbour, o.Control = slow, &Neighbour{P50MS: 30} }, Breached, "", "less than its share"},
		{"a neighbour is slow, beside an honest program too", exit, func(o *Observation) { o.Neighbour, o.Control = slow, &Neighbour{P50MS: 400} }, Contained, "", "half within 1500 ms"},
		{"a neighbour is slow, and was so before", exit, func(o *Observation) { o.Neighbour = &Neighbour{Samples: 9, AloneP50MS: 90, P50MS: 1500} }, Contained, "", "alone 90"},
		{"a neighbour is slow, and there is no control", exit, func(o *Observation) { o.Neighbour = slow }, Inconclusive, "", "not known"},

		{"held, and nobody saw", memory, func(o *Observation) { o.CapsHit = nil }, Contained, "no", "not recorded: memory"},
		{"refused, and nobody saw", links, func(o *Observation) { o.Denied = []string{"out.special"} }, Contained, "no", "not recorded: out.symlink"},

		{"the number is missing", exit, func(o *Observation) { o.Began, o.Ended = false, false }, Inconclusive, "", "did not show that it ran"},
		{"the number is missing and the ending wrong", memory, func(o *Observation) { o.Began, o.Result.Ending = false, api.EndExit }, Inconclusive, "", "did not show"},
		{"it gave up half way", exit, func(o *Observation) { o.Ended, o.Result.ExitCode = false, 1 }, Inconclusive, "", "came to its end"},
		{"no interpreter", exit, func(o *Observation) { o.Began, o.Result.NotStarted = false, "no such file" }, Inconclusive, "", "not started"},
		{"no sandbox", exit, func(o *Observation) { *o = Observation{Failure: "create: no"} }, Inconclusive, "", "create: no"},
		{"nothing was seen of it", exit, func(o *Observation) { o.Looked = 0 }, Inconclusive, "", "no process"},
		{"nothing can be seen of it", exit, func(o *Observation) { o.Looked, o.CanLook = 0, false }, Contained, "", ""},
		{"somebody loaded a module", exit, func(o *Observation) { o.Moved = []string{"new module: loop"} }, Inconclusive, "", "whoever did it"},
		{"memory went somewhere", exit, func(o *Observation) { o.MemoryLost = 2 << 30 }, Inconclusive, "", "less memory"},
		{"disk went somewhere", exit, func(o *Observation) { o.DiskLost = 2 << 30 }, Inconclusive, "", "less disk"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o Observation
			if len(tt.c.Endings) > 0 {
				o = fine(tt.c)
				if tt.c.Exit != 0 {
					o.Result.ExitCode = tt.c.Exit
				}
			}
			if tt.change != nil {
				tt.change(&o)
			}
			r := Judge(tt.c, o)
			seen := ""
			if r.Seen != nil {
				seen = map[bool]string{true: "yes", false: "no"}[*r.Seen]
			}
			if r.Verdict != tt.want || seen != tt.seen || !strings.Contains(r.Evidence, tt.word) {
				t.Errorf("got %s, seen %q: %s", r.Verdict, seen, r.Evidence)
			}
			if finding := tt.want == Breached || tt.seen == "no"; r.Finding() != finding {
				t.Errorf("finding is %v", r.Finding())
			}
			if strings.ContainsAny(r.Evidence, "\x1b\n") || len(r.Evidence) > maxEvidence+3 {
				t.Errorf("evidence is not harmless: %q", r.Evidence)
			}
		})
	}
}

func TestEvidenceNeverRepeatsWhatLeaked(t *testing.T) {
	c := testCase(api.EndExit, nil)
	o := fine(c)
	o.Ended, o.Said, o.Leaks = false, "the secret", []string{"the canary of /x is in its output"}
	if r := Judge(c, o); strings.Contains(r.Evidence, "secret") {
		t.Errorf("evidence repeats the secret: %s", r.Evidence)
	}
	long := fine(c)
	for range 500 {
		long.Left = append(long.Left, "new process: \x1b]0;x\x07\xff")
	}
	if r := Judge(c, long); len(r.Evidence) > maxEvidence+3 || strings.ContainsRune(r.Evidence, '\x1b') {
		t.Errorf("evidence is not bounded and harmless: %q", r.Evidence)
	}
}

func TestCompare(t *testing.T) {
	base := view{"process": {"1 a", "2 b"}, "state file": {"x"}, "cgroup": {"/cg/berm-sother"}, "setting": {"core_pattern = core"}}
	if d := compare(base, base, "smine"); len(d) > 0 {
		t.Errorf("equal views differ: %v", d)
	}
	for _, tt := range []struct {
		kind string
		now  []string
		want string // "" means no difference
	}{
		{"process", []string{"1 a", "2 b", "3 c"}, "new process: 3 c"},
		{"process", []string{"1 a"}, "process is gone: 2 b"},
		{"state file", []string{"runs/s1", "x"}, "new state file: runs/s1"},
		{"setting", []string{"core_pattern = |/own"}, "new setting: core_pattern = |/own"},
		{"cgroup", []string{"/cg/berm-sthird"}, ""}, // somebody else's
		{"cgroup", []string{"/cg/berm-smine"}, "new cgroup: /cg/berm-smine"},
		{"mount", []string{"/run/berm-smine"}, "new mount: /run/berm-smine"},
	} {
		after := maps.Clone(base)
		after[tt.kind] = tt.now
		if got := strings.Join(compare(base, after, "smine"), "|"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s %v: got %q, want %q", tt.kind, tt.now, got, tt.want)
		}
	}
}
