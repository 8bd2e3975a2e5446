package report

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/attack"
)

func yes(b bool) *bool { return &b }

var allCases = sync.OnceValues(attack.Cases)

// sample is a report with one of everything: all cases of this build, on two
// rungs, and what is seldom seen.
func sample(t testing.TB) attack.Report {
	t.Helper()
	all, err := allCases()
	if err != nil {
		t.Fatal(err)
	}
	rep := attack.Report{
		Target: "berm v0.7.0", Command: "berm attack --isolation gvisor,microvm", Date: time.Date(2026, 11, 30, 9, 5, 0, 0, time.UTC),
		Host: attack.Host{Kernel: "6.12.1", Arch: "amd64", CPUs: 2, MemoryBytes: 8 << 30, Root: true, Cgroup: "v2", Distribution: "Debian GNU/Linux 13 (trixie)",
			CPUModel: "A Processor", Virtual: true, SecurityModules: []string{"capability", "apparmor"}, Vulnerabilities: map[string]string{"spectre_v2": "Mitigation: <b>IBRS</b>"}},
		Build: attack.Build{Version: "v0.7.0", Go: "go1.26", BinarySHA256: strings.Repeat("ab", 32), RuntimeSHA256: strings.Repeat("cd", 32)},
		Suite: attack.Suite{Cases: len(all), SHA256: strings.Repeat("ef", 32)},
		Cases: []attack.Result{}, Benign: []attack.Benign{},
	}
	for _, rung := range []string{"gvisor", "microvm"} {
		for i, c := range all {
			r := attack.Result{ID: c.ID, Family: c.Family, Wall: c.Wall, Goal: c.Goal, Isolation: rung, Boundary: "user-kernel", Verdict: attack.Contained, Seconds: 1.25,
				Evidence: "ending exit, exit code 0, after 0.3 s; no canary in 7288 bytes of output; canaries untouched and uncalled, nothing left behind"}
			switch {
			case i == 3 && rung == "microvm":
				r.Verdict, r.Evidence = attack.Breached, `TCP to 10.9.8.7:80 was called 2 times; it said "began </script><script>alert(1)</script>"`
			case i == 7:
				r.Seen = yes(false)
				r.Evidence += "; not recorded: udp"
			case i == 8:
				r.Verdict, r.Evidence = attack.Inconclusive, "the program did not show that it ran"
			case i == 9:
				r.Verdict, r.Evidence = attack.NotApplicable, "waits for a part that is not built yet: microvm"
			case i%3 == 0:
				r.Seen = yes(true)
			}
			if c.Family == "exhaustion" {
				r.Neighbour = &attack.Neighbour{Samples: 40, AloneP50MS: 12, P50MS: 15 + float64(i%9)*3, P99MS: 60, MaxMS: 61 + float64(i)}
			}
			rep.Cases = append(rep.Cases, r)
		}
	}
	for i, what := range []string{"a build", "an archive", "a web page"} {
		rep.Benign = append(rep.Benign, attack.Benign{ID: fmt.Sprintf("benign-%d", i), Goal: what, Isolation: "gvisor", Hindered: i == 2, Evidence: "exit code 0, as it is natively", Seconds: .8})
	}
	rep.Benign = append(rep.Benign, attack.Benign{ID: "benign-git", Goal: "a commit", Isolation: "gvisor", NotRun: true, Evidence: "git is not on this host"})
	rep.Summary = attack.Sum(rep.Cases, rep.Benign)
	rep.Summary.Seconds = 212.5
	return rep
}

// calm is one in which nothing was found.
func calm(t testing.TB) attack.Report {
	rep := sample(t)
	var out []attack.Result
	for _, r := range rep.Cases {
		if r.Isolation == "gvisor" {
			r.Verdict, r.Seen = attack.Contained, yes(true)
			out = append(out, r)
		}
	}
	rep.Cases, rep.Benign = out, rep.Benign[:2]
	rep.Summary = attack.Sum(rep.Cases, rep.Benign)
	rep.Summary.Seconds = 98
	return rep
}

func signed(t testing.TB, rep attack.Report) (attack.Report, Key) {
	t.Helper()
	k, err := OpenKey(t.TempDir())
	if err == nil {
		err = k.Sign(&rep)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rep, k
}

func written(t testing.TB, form string, rep attack.Report) []byte {
	t.Helper()
	b, err := Write(form, rep)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWriteSamples leaves all forms in a folder, for whoever wants to look.
func TestWriteSamples(t *testing.T) {
	dir := os.Getenv("BERM_TEST_REPORTS")
	if dir == "" {
		t.Skip("BERM_TEST_REPORTS names no folder")
	}
	for name, rep := range map[string]attack.Report{"sample": sample(t), "calm": calm(t)} {
		rep, _ := signed(t, rep)
		for _, form := range Forms {
			if err := os.WriteFile(dir+"/"+name+"."+form, written(t, form, rep), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
