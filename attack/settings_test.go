package attack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPutBack: a setting that a hostile program changed becomes what it was, by
// whoever is left to do it; one that somebody else has changed stays.
func TestPutBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pattern")
	for _, tt := range []struct{ was, is, want string }{
		{"core", "core." + ownWord, "core"},
		{"", "/" + ownWord + "/none", ""},
		{"a = b", ownWord, "a = b"},
		{"core", "theirs", "theirs"},
	} {
		before := view{"setting": {path + " = " + tt.was}}
		for who, put := range map[string]func(){
			"the suite": func() { putBack(before) },
			"the guard": func() {
				os.WriteFile(filepath.Join(dir, "settings"), []byte(path+" = "+tt.was+"\n"), 0o600)
				os.WriteFile(filepath.Join(dir, "planted"), nil, 0o600)
				cmd := exec.Command("sh", "-c", guard, "berm-attack")
				cmd.Env = []string{"PATH=/usr/bin:/bin", "BERM_DIR=" + dir, "BERM_SOCKET=" + dir + "/none"}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			},
		} {
			if err := os.WriteFile(path, []byte(tt.is+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if put(); strings.TrimSpace(readText(path)) != tt.want {
				t.Errorf("%s: %q, which was %q, became %q", who, tt.is, tt.was, readText(path))
			}
		}
	}
}

// TestPowerless: what is started without rights over the machine has none of them,
// and who started it keeps its own.
func TestPowerless(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: nobody else has such rights")
	}
	had := status("/proc/self")["CapBnd"]
	var out []byte
	err := powerless(func() (err error) {
		out, err = exec.Command("sh", "-c", "grep CapEff /proc/self/status").Output()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var caps uint64
	for _, c := range strings.TrimSpace(strings.TrimPrefix(string(out), "CapEff:")) {
		caps = caps<<4 | uint64(strings.IndexRune("0123456789abcdef", c))
	}
	for _, right := range dire {
		if caps&(1<<right) != 0 {
			t.Errorf("it has right %d", right)
		}
	}
	if caps&(1<<unix.CAP_SYS_ADMIN) == 0 {
		t.Error("it lacks rights that sandboxes are made with")
	}
	if now := status("/proc/self")["CapBnd"]; now != had {
		t.Errorf("this process had %s and has %s", had, now)
	}
}
