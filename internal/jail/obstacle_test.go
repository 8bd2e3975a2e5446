package jail

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestObstacles(t *testing.T) {
	const (
		whole = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n"
		none  = "CapEff:\t00000000a80425fb\nSeccomp:\t2\n"
	)
	for _, tt := range []struct {
		name  string
		uid   int
		files map[string]string
		nofil uint64
		nproc uint64
		why   string // "" for none
		fix   string
	}{
		{name: "an ordinary host", uid: 1000, files: map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "1\n", "proc/sys/user/max_user_namespaces": "100\n", "proc/sys/kernel/yama/ptrace_scope": "1\n"}},
		{name: "no namespaces at all, for root too", files: map[string]string{"proc/sys/user/max_user_namespaces": "0\n"}, why: "switched off", fix: "sudo sysctl -w user.max_user_namespaces=28633"},
		{name: "for root only", uid: 1000, files: map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, why: "root only", fix: "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		{name: "for root only, as root", files: map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n"}},
		{name: "Ubuntu", uid: 1000, files: map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "proc/self/attr/current": "unconfined\n"}, why: "AppArmor", fix: `profile berm "/opt/berm"`},
		{name: "Ubuntu, with the profile", uid: 1000, files: map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "proc/self/attr/current": "berm (unconfined)\n"}},
		{name: "Ubuntu, as root", files: map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}},
		{name: "docker", files: map[string]string{".dockerenv": "", "proc/self/status": none}, why: "root without its rights", fix: "docker run --privileged"},
		{name: "podman, a user inside", uid: 1000, files: map[string]string{"run/.containerenv": "", "proc/self/status": none}, why: "seccomp", fix: "podman run --security-opt seccomp=unconfined"},
		{name: "a sandbox of another kind", files: map[string]string{"proc/self/status": none}, why: "root without its rights", fix: "sudo berm"},
		{name: "no ptrace for users", uid: 1000, files: map[string]string{"proc/sys/kernel/yama/ptrace_scope": "2\n"}, why: "ptrace_scope is 2", fix: "sudo sysctl -w kernel.yama.ptrace_scope=1"},
		{name: "no ptrace until it is booted again", files: map[string]string{"proc/sys/kernel/yama/ptrace_scope": "3\n"}, why: "ptrace_scope is 3", fix: "reboot"},
		{name: "few files", uid: 1000, nofil: 64, why: "open files", fix: "sudo prlimit --pid $$ --nofile=16384"},
		{name: "few processes", uid: 1000, nproc: 10, why: "too few processes", fix: "sudo prlimit --pid $$ --nproc=16384"},
		{name: "SELinux", files: map[string]string{"sys/fs/selinux/enforce": "1"}, why: "SELinux", fix: "ausearch"},
		{name: "no proc", files: map[string]string{"proc/self/status": "-"}, why: "/proc is not mounted", fix: "sudo mount -t proc proc /proc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{"proc/self/status": whole}
			for name, content := range tt.files {
				files[name] = content
			}
			if files["proc/self/status"] == "-" {
				delete(files, "proc/self/status")
			}
			h := host{root: tree(t, files), uid: tt.uid, exe: "/opt/berm", files: 1024, tasks: unix.RLIM_INFINITY}
			if tt.nofil > 0 {
				h.files = tt.nofil
			}
			if tt.nproc > 0 {
				h.tasks = tt.nproc
			}
			got := h.obstacles()
			if tt.why == "" {
				if len(got) != 0 {
					t.Fatalf("%+v, want none", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0].Why, tt.why) || !strings.Contains(got[0].Fix, tt.fix) {
				t.Errorf("%+v, want one of %q with %q", got, tt.why, tt.fix)
			}
			for _, o := range got {
				if strings.Contains(o.Fix, "\n") {
					t.Errorf("%q is more than one line", o.Fix)
				}
			}
		})
	}
}
