package attack

import (
	"crypto/rand"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestPlantedIsDocumented: who runs this on a machine of theirs can read what is
// put there.
func TestPlantedIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/canaries.md") // before the folder changes
	if err != nil {
		t.Fatal(err)
	}
	p := plantAway(t)
	for kind := range p.kinds {
		if !strings.Contains(string(doc), "`"+kind+"`") {
			t.Errorf("docs/canaries.md does not say where canaries of the kind %s are", kind)
		}
	}
}

// TestValuesAreNoArguments: what is planted is seen in the arguments of no
// process, but for the one whose argument is planted.
func TestValuesAreNoArguments(t *testing.T) {
	p := plantAway(t)
	told := strings.Join(p.holder.Args, " ")
	for _, d := range descendants() {
		told += readText(procFile(d.pid, "cmdline"))
	}
	n := 0
	for _, needle := range p.needles {
		if strings.HasPrefix(needle.value, canaryWord) && strings.Contains(told, needle.value) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d values are arguments", n)
	}
}

// TestGuard: what was planted is gone soon after its planter is, and what
// somebody has changed since is not.
func TestGuard(t *testing.T) {
	p := plantAway(t)
	changed := p.kinds["vault"].at[0]
	if err := os.WriteFile(changed, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.release.Close() // as when this process is killed
	p.holder.Wait()
	for _, f := range p.files {
		if _, err := os.Lstat(f.path); (err == nil) != (f.path == changed) {
			t.Errorf("%s: %v", f.path, err)
		}
	}
	for _, d := range append(p.dirs, p.dir) {
		if _, err := os.Lstat(d); err == nil {
			t.Errorf("%s is still there", d)
		}
	}
}

// TestTalkersAreBounded: a caller that says anything is let go.
func TestTalkersAreBounded(t *testing.T) {
	junk := make([]byte, 64<<10)
	rand.Read(junk)
	for name, talk := range map[string]func(net.Conn, string){"ssh": func(c net.Conn, s string) { sshAgent(c, s, func(string) {}) }, "gpg": gpgAgent, "git": gitCache,
		"bus": messageBus, "x": xServer, "wayland": waylandServer, "web": webServer} {
		for _, say := range [][]byte{nil, junk, []byte(strings.Repeat("\n", 9000)), []byte(strings.Repeat("x", 9000)), []byte("\xff\xff\xff\xff\x0b")} {
			ours, theirs := net.Pipe()
			done := make(chan struct{})
			go func() { talk(theirs, "secret"); theirs.Close(); close(done) }()
			go func() {
				var b [4096]byte
				for {
					if _, err := ours.Read(b[:]); err != nil {
						return
					}
				}
			}()
			ours.SetDeadline(time.Now().Add(time.Second))
			ours.Write(say)
			ours.Close()
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Errorf("%s does not let go of who says %.20q", name, say)
			}
		}
	}
}

// plantAway plants in a home that is nobody's, until the test ends.
func plantAway(t *testing.T) *planting {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	p, err := plant()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.uproot)
	l, err := setLure(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	p.plantState(t.TempDir())
	return p
}
