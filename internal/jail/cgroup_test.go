package jail

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tree makes a fake cgroup file system: a map of files, the rest directories.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFindHierarchy(t *testing.T) {
	for _, tt := range []struct {
		name    string
		files   map[string]string
		mounts  string // R is the root of the tree
		self    string
		want    map[string]string // controller -> path below R
		v2      bool
		missing []string
	}{
		{
			name:  "v1, each controller where we are in it",
			files: map[string]string{"memory/me/": "", "pids/": "", "cpu/": "", "cpuacct/": ""},
			mounts: "1 1 0:1 / R/memory rw - cgroup cgroup rw,memory\n2 1 0:2 / R/pids rw - cgroup cgroup rw,pids\n" +
				"3 1 0:3 / R/cpu rw - cgroup cgroup rw,cpu\n4 1 0:4 / R/cpuacct rw - cgroup cgroup rw,cpuacct\n",
			self: "4:memory:/me\n3:pids:/\n2:cpu:/\n1:cpuacct:/\n0::/\n",
			want: map[string]string{"memory": "memory/me", "pids": "pids", "cpu": "cpu", "cpuacct": "cpuacct"},
		},
		{
			name:   "v1 with cpu and cpuacct together, seen from inside a container",
			files:  map[string]string{"memory/": "", "pids/": "", "cpu,cpuacct/": ""},
			mounts: "1 1 0:1 /docker/x R/memory rw - cgroup cgroup rw,memory\n2 1 0:2 /docker/x R/pids rw - cgroup cgroup rw,pids\n3 1 0:3 /docker/x R/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
			self:   "3:memory:/docker/x\n2:pids:/docker/x\n1:cpu,cpuacct:/docker/x\n",
			want:   map[string]string{"memory": "memory", "pids": "pids", "cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"},
		},
		{
			name:    "v1 without pids",
			files:   map[string]string{"memory/": "", "cpu/": ""},
			mounts:  "1 1 0:1 / R/memory rw - cgroup cgroup rw,memory\n2 1 0:2 / R/cpu rw - cgroup cgroup rw,cpu\n",
			self:    "2:memory:/\n1:cpu:/\n",
			want:    map[string]string{"memory": "memory", "cpu": "cpu"},
			missing: []string{"pids"},
		},
		{
			name: "v2, delegated to us",
			files: map[string]string{"cgroup.subtree_control": "cpu memory pids", "me/cgroup.type": "domain", "me/cgroup.controllers": "cpu memory pids",
				"me/cgroup.subtree_control": "", "me/cgroup.procs": ""},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/me\n",
			want:   map[string]string{"": "me"}, v2: true,
		},
		{
			name: "v2, ours holds strangers: a group of our own below the nearest one above it",
			files: map[string]string{"slice/cgroup.type": "domain", "slice/cgroup.controllers": "cpu memory pids", "slice/cgroup.subtree_control": "memory",
				"slice/me/cgroup.type": "domain", "slice/me/cgroup.controllers": "memory", "slice/me/cgroup.procs": "1999999999\n"},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/slice/me\n",
			want:   map[string]string{"": "slice/berm"}, v2: true,
		},
		{
			name:   "v2, at the root of all, which holds processes",
			files:  map[string]string{"cgroup.controllers": "cpu io memory pids", "cgroup.subtree_control": "", "cgroup.procs": "1\n1999999999\n"},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/\n",
			want:   map[string]string{"": "berm"}, v2: true,
		},
		{
			name: "v2, put into its leaf by an earlier one",
			files: map[string]string{"me/cgroup.type": "domain", "me/cgroup.controllers": "cpu memory pids", "me/cgroup.subtree_control": "cpu memory pids",
				"me/cgroup.procs": "", "me/berm-host/cgroup.type": "domain", "me/berm-host/cgroup.controllers": "cpu memory pids", "me/berm-host/cgroup.procs": "1999999999\n"},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/me/berm-host\n",
			want:   map[string]string{"": "me"}, v2: true,
		},
		{
			name: "v2, a unit that systemd would stop for a sandbox that was out of memory: beside it",
			files: map[string]string{"slice/cgroup.type": "domain", "slice/cgroup.controllers": "cpu memory pids", "slice/cgroup.subtree_control": "",
				"slice/x.service/cgroup.type": "domain", "slice/x.service/cgroup.controllers": "cpu memory pids", "slice/x.service/cgroup.procs": "",
				"slice/x.service/memory.max": "max", "slice/x.service/cpu.max": "max 100000"},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/slice/x.service\n",
			want:   map[string]string{"": "slice/berm"}, v2: true,
		},
		{
			name: "v2, such a unit with a bound of its own: in it, for nothing may leave the bound",
			files: map[string]string{"slice/cgroup.type": "domain", "slice/cgroup.controllers": "cpu memory pids", "slice/cgroup.subtree_control": "",
				"slice/x.service/cgroup.type": "domain", "slice/x.service/cgroup.controllers": "cpu memory pids", "slice/x.service/cgroup.procs": "",
				"slice/x.service/memory.max": "1073741824", "slice/x.service/cpu.max": "max 100000"},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/slice/x.service\n",
			want:   map[string]string{"": "slice/x.service"}, v2: true,
		},
		{
			name: "v2, a user to whom cpu is not handed on",
			files: map[string]string{"user/cgroup.type": "domain", "user/cgroup.controllers": "memory pids", "user/cgroup.subtree_control": "",
				"user/me/cgroup.type": "domain", "user/me/cgroup.controllers": "", "user/me/cgroup.procs": ""},
			mounts: "1 1 0:1 /user R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/user/user/me\n",
			want:   map[string]string{"": "user/berm"}, v2: true,
			missing: []string{"cpu"},
		},
		{
			name:   "v2, nothing delegated",
			files:  map[string]string{"cgroup.type": "domain", "cgroup.subtree_control": "", "cgroup.controllers": "io", "me/cgroup.type": "domain", "me/cgroup.controllers": "", "me/cgroup.subtree_control": ""},
			mounts: "1 1 0:1 / R rw - cgroup2 cgroup2 rw\n",
			self:   "0::/me\n", v2: true,
			missing: []string{"cpu", "memory", "pids"},
		},
		{
			name:    "a hybrid that is closed to us: the old controllers are the ones to name",
			files:   map[string]string{"unified/cgroup.controllers": "", "cpuacct/": ""},
			mounts:  "1 1 0:1 / R/memory rw - cgroup cgroup rw,memory\n2 1 0:2 / R/pids rw - cgroup cgroup rw,pids\n3 1 0:3 / R/cpu rw - cgroup cgroup rw,cpu\n4 1 0:4 / R/unified rw - cgroup2 cgroup2 rw\n",
			self:    "3:memory:/\n2:pids:/\n1:cpu:/\n0::/\n",
			missing: []string{"cpu", "memory", "pids"},
		},
		{name: "no cgroups at all", missing: []string{"cpu", "memory", "pids"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, tt.files)
			h, missing := findHierarchy(strings.ReplaceAll(tt.mounts, "R/", root+"/")+"", tt.self)
			if strings.Contains(tt.mounts, " R ") {
				h, missing = findHierarchy(strings.ReplaceAll(tt.mounts, " R ", " "+root+" "), tt.self)
			}
			got := map[string]string{}
			for c, p := range h.parents {
				rel, _ := filepath.Rel(root, p)
				got[c] = rel
			}
			if len(got) != len(tt.want) || h.V2 != tt.v2 {
				t.Fatalf("found %v (v2 %v), want %v (v2 %v)", got, h.V2, tt.want, tt.v2)
			}
			for c, p := range tt.want {
				if got[c] != p {
					t.Errorf("%s: %s, want %s", c, got[c], p)
				}
			}
			var names []string
			for c := range missing {
				names = append(names, c)
			}
			slices.Sort(names)
			if !slices.Equal(names, tt.missing) {
				t.Errorf("missing %v, want %v", names, tt.missing)
			}
		})
	}
}

// On v2 the files of a new group exist by themselves; the fake makes the
// settings visible instead.
func TestSettings(t *testing.T) {
	l := Limits{MemoryBytes: 64 << 20, Tasks: 96, CPUs: 1.5}
	for _, tt := range []struct {
		v2   bool
		want []string
	}{
		{false, []string{"memory.limit_in_bytes=67108864", "memory.memsw.limit_in_bytes=67108864", "pids.max=96", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000"}},
		{true, []string{"memory.max=67108864", "memory.swap.max=0", "memory.oom.group=1", "pids.max=96", "cpu.max=150000 100000"}},
	} {
		var got []string
		for _, s := range settings(tt.v2, l) {
			got = append(got, s.file+"="+s.value)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("v2 %v: %q, want %q", tt.v2, got, tt.want)
		}
	}
	if s := settings(false, Limits{}); len(s) != 0 {
		t.Errorf("no limits give settings: %v", s)
	}
}

// realHierarchy is this host's, or the test is skipped.
func realHierarchy(t *testing.T) *Hierarchy {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	h, missing := FindHierarchy()
	if len(missing) > 0 {
		t.Skipf("this host has no usable cgroups: %v", missing)
	}
	return h
}

func TestCgroupLife(t *testing.T) {
	h := realHierarchy(t)
	name := "berm-jail-test-life"
	c, err := h.Create(name, Limits{MemoryBytes: 64 << 20, Tasks: 64, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Create(name, Limits{}); err == nil {
		t.Error("a second group of the same name was made")
	}
	if got := h.Named(name); len(got) == 0 {
		t.Error("the group is not listed")
	}
	if err := c.Remove(time.Second); err != nil {
		t.Fatal(err)
	}
	if got := h.Named(name); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	if err := c.Remove(time.Second); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}

// A create that fails in its last step leaves nothing.
func TestCreateUndo(t *testing.T) {
	root := tree(t, map[string]string{"memory/": "", "pids/": ""})
	h := &Hierarchy{parents: map[string]string{"memory": root + "/memory", "pids": root + "/pids"}}
	if _, err := h.Create("x", Limits{Tasks: 5, CPUs: 1}); err == nil {
		t.Fatal("a cpu limit was accepted without the controller")
	}
	for _, c := range []string{"memory", "pids"} {
		// A real cgroup directory goes with its files; the fake's one file stays.
		os.Remove(filepath.Join(root, c, "x", "pids.max"))
		os.Remove(filepath.Join(root, c, "x"))
		if ents, _ := os.ReadDir(filepath.Join(root, c)); len(ents) != 0 {
			t.Errorf("%s: left behind", c)
		}
	}
}
