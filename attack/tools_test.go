package attack

import (
	"regexp"
	"strings"
	"testing"
)

// reports are what a tool says where there is nothing, and where there is
// something: in the second, one line is real.
var reports = map[string][2]string{
	"capsh": {"Current: =\nBounding set =\nuid=1000(agent) euid=1000(agent)\nGuessed mode: NOPRIV (1)\n",
		"Current: =\nBounding set =cap_chown,cap_sys_admin\nGuessed mode: HYBRID (4)\n"},
	"captest": {"Current capabilities: none\nAttempting direct access to shadow...FAILED (Permission denied)\nAttempting to access shadow by child process...FAILED\n",
		"Attempting direct access to shadow...SUCCESS\nAttempting to access shadow by child process...FAILED\n"},
	"linuxprivchecker": {"  - Sendpage || http://www.exploit-db.com/exploits/19933 || Language=ruby**\n    -rwsr-xr-x 1 root root 72000 Nov 21  2024 /usr/bin/su\nFinished\n",
		"[+] Shadow File (Privileged)\n    root:$y$j9T$abc:19000:0:99999:7:::\nFinished\n"},
	"privmap": {"path critical: Writable file /bin (mode: 0o777); /bin controls how root: x runs\npath low: shell of agent\nprivmap: 2 paths\n", ""},
	"cepheus": {"privileged: false\nseccomp: disabled\neffective: \nposture: 7 mounts\n", "can_reach_docker_sock: true\nposture: 7 mounts\n"},
	"amicontained": {"Has Namespaces:\n\tpid: true\n\tuser: false\nSeccomp: disabled\nBlocked Syscalls (45):\n",
		"Capabilities:\n\tBOUNDING -> chown sys_admin\nBlocked Syscalls (1):\n"},
	"deepce": {"\x1b[1m[+] Exploit Test ............ Exploitable - Check this out\n[+] Docker Sock ............. Not Found\n( Enumerating Containers )\n",
		"[+] Docker Sock ............. Yes\n( Enumerating Containers )\n"},
	"linenum":   {"-rwsr-xr-x 1 root root 72000 Nov 21 2024 /usr/bin/su\n### SCAN COMPLETE ###\n", "[+] We can read the shadow file!\n### SCAN COMPLETE ###\n"},
	"suggester": {"Possible Exploits:\n[+] [CVE-2016-5195] dirtycow\n", ""},
	"trinity":   {"[main] 10185 iterations. [F:7622 S:2541]\n", "BUG: unable to handle\n[main] 10185 iterations.\n"},
	"stress-ng": {"stress-ng: info: [11] successful run completed in 5.04s\n", "kernel panic\nsuccessful run completed in 5.04s\n"},
}

func TestToolsAreRead(t *testing.T) {
	for name, tl := range tools {
		r, ok := reports[name]
		if !ok {
			t.Errorf("nothing is known of what %s says", name)
			continue
		}
		if found, _, whole := tl.read([]byte(r[0])); len(found) > 0 || !whole {
			t.Errorf("%s, nothing to find: %v, whole %v", name, found, whole)
		}
		if _, _, whole := tl.read([]byte("it was ended in the middle\n")); whole {
			t.Errorf("%s: half a report is taken for a whole one", name)
		}
		if r[1] == "" {
			continue
		}
		if found, _, whole := tl.read([]byte(r[1])); len(found) != 1 || !whole {
			t.Errorf("%s, one thing to find: %v, whole %v", name, found, whole)
		}
	}
}

// What a tool claims and nothing explains is a finding; a report that broke off
// proves nothing.
func TestToolsAreJudged(t *testing.T) {
	c := Case{ID: "tools-x", Tool: "cepheus", Endings: []string{"exit"}}
	o := fine(c)
	o.readTool(c, []byte(reports["cepheus"][0]))
	if r := Judge(c, o); r.Verdict != Contained || !strings.Contains(r.Evidence, "filter") {
		t.Errorf("nothing found: %s: %s", r.Verdict, r.Evidence)
	}
	o.readTool(c, []byte(reports["cepheus"][1]))
	if r := Judge(c, o); r.Verdict != Breached || !strings.Contains(r.Evidence, "docker_sock") {
		t.Errorf("a socket found: %s: %s", r.Verdict, r.Evidence)
	}
	o.readTool(c, []byte("half"))
	if r := Judge(c, o); r.Verdict != Inconclusive {
		t.Errorf("half a report: %s: %s", r.Verdict, r.Evidence)
	}
}

func TestToolShapes(t *testing.T) {
	for name, tl := range tools {
		shapes := append([]string{tl.over}, tl.finds...)
		for _, n := range tl.noise {
			if n.why == "" {
				t.Errorf("%s: no reason for %s", name, n.shape)
			}
			shapes = append(shapes, n.shape)
		}
		for _, s := range shapes {
			if _, err := regexp.Compile(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
