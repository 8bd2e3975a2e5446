package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/jail"
)

// TestConfined: what a maker could do if it were taken over.
func TestConfined(t *testing.T) {
	if realMaker() == "" {
		t.Skip("needs a static test binary (CGO_ENABLED=0): a filter reaches all threads only of one")
	}
	out, err := fake(t, "confined").make(t.Context(), task{Kind: "confined", MaxBytes: 1 << 20}, files{}, nil)
	var got map[string]string
	if err == nil || json.Unmarshal([]byte(strings.TrimPrefix(err.Error(), "template.invalid: ")), &got) != nil {
		e, _ := err.(*api.Error)
		if e == nil || json.Unmarshal([]byte(e.Message), &got) != nil {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	for what, e := range got {
		if e != unix.EPERM.Error() && !(what == "write 4 GiB" && e == unix.EFBIG.Error()) && !(what == "clone3" && e == unix.ENOSYS.Error()) {
			t.Errorf("%s: %s", what, e)
		}
	}
	if len(got) < 8 {
		t.Errorf("only %v was tried", got)
	}
}

// confined is what that maker tries.
func confined(args []string) {
	uid, most := 0, int64(1<<30)
	fmt.Sscan(args[0], &uid)
	if err := jail.ConfineMaker(args[1], uid, jail.MakerLimits{File: most, Data: makerMemory}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	got := map[string]string{}
	try := func(what string, err error) { got[what] = fmt.Sprint(err) }
	_, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	try("open", err)
	_, err = unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{})
	try("openat2", err)
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	try("socket", err)
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	try("socketpair", err)
	try("exec", unix.Exec("/bin/true", []string{"true"}, nil))
	try("mkdir", unix.Mkdir("/tmp/x", 0o700))
	try("unlink", unix.Unlink("/tmp/x"))
	try("mount", unix.Mount("none", "/", "tmpfs", 0, ""))
	try("ptrace", unix.PtraceAttach(1))
	try("kill", unix.Kill(os.Getppid(), 0))
	try("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	_, _, e := syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	try("clone3", e)
	b, _ := json.Marshal(got)
	json.NewEncoder(os.Stdout).Encode(reply{Error: &api.Error{Code: api.CodeTemplateInvalid, Message: string(b)}})
}

// fake is a store whose maker is another program: this one, told what to do.
func fake(t *testing.T, does string) *Store {
	t.Helper()
	w := newWorld(t, false, Options{})
	script := filepath.Join(t.TempDir(), "maker")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nshift\nexec "+self+" fake-maker "+does+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.store.opt.Maker = script
	return w.store
}

// fakeMaker is a maker that lies or dies.
func fakeMaker(does string, args []string) {
	say := func(s string) { os.Stdout.WriteString(s + "\n") }
	switch does {
	case "confined":
		confined(args)
	case "dies":
		os.Stderr.WriteString("fatal error: out of memory\nmore")
		unix.Kill(os.Getpid(), unix.SIGKILL)
	case "silent":
	case "babbles":
		for range 10000 {
			say(`{"progress":{"phase":"\u001b[31mred","done":1,"total":2}}`)
		}
		say(`{"made":{"bytes":4096}}`)
	case "endless":
		b := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := os.Stdout.Write(b); err != nil {
				return
			}
		}
	case "negative":
		say(`{"made":{"bytes":-1}}`)
	case "both":
		say(`{"made":{},"error":{"code":"template.invalid"}}`)
	case "code":
		say(`{"error":{"code":"auth.denied","error":"x"}}`)
	case "home":
		say(`{"made":{"account":{"uid":1,"home":"/a\nb"}}}`)
	case "nothing":
		say(`{"made":{"bytes":8192,"account":{"uid":1000,"gid":1000,"home":"/x"}}}`) // and wrote nothing
	case "hangs":
		time.Sleep(time.Hour)
	}
}

func TestMakerLies(t *testing.T) {
	for _, does := range []string{"dies", "silent", "endless", "negative", "both", "code", "home", "nothing", "babbles"} {
		t.Run(does, func(t *testing.T) {
			s := fake(t, does)
			n := 0
			_, err := s.Do(t.Context(), Job{Kind: JobImport, Name: "x"}, bytes.NewReader(archive(t, file{name: "f"})), func(p api.TemplateProgress) {
				if n++; strings.ContainsRune(p.Phase, 27) {
					t.Errorf("phase %q", p.Phase)
				}
			})
			if code(err) != api.CodeTemplateInvalid {
				t.Errorf("%v", err)
			}
			if does == "dies" && !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("%v does not say why", err)
			}
			if n > 2000 {
				t.Errorf("%d reports", n)
			}
			w := world{s, s, s.dir}
			w.clean(t)
			if w.images(t) > 0 {
				t.Error("an image is left")
			}
		})
	}
}

// FuzzMakerReply: whatever a maker says is an answer within its bounds, or none.
func FuzzMakerReply(f *testing.F) {
	f.Add([]byte(`{"progress":{"phase":"scan","done":1,"total":2}}`))
	f.Add([]byte(`{"error":{"code":"template.invalid","error":"x","hint":"y"}}`))
	f.Add([]byte(`{"made":{"bytes":4096,"inodes":3,"account":{"uid":1,"gid":2,"home":"/x"},"image":{"digest":"sha256:00","config":{"env":["A=b"]}}}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseReply(line)
		if err != nil {
			return
		}
		if p := m.Progress; p != nil && (len(p.Phase) > 40 || len(p.Item) > 200 || p.Done < 0) {
			t.Errorf("%+v", p)
		}
		if e := m.Error; e != nil && (len(e.Message) > maxMessage || strings.ContainsAny(e.Message+e.Hint, "\n\x1b")) {
			t.Errorf("%+v", e)
		}
		if m.Made != nil && (m.Made.Bytes < 0 || m.Made.Account.Home != "" && m.Made.Account.Home[0] != '/') {
			t.Errorf("%+v", m.Made)
		}
	})
}
