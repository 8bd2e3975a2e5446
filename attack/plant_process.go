package attack

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

func procFile(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// plantProcesses starts two processes that are beside the suite and hold what
// processes hold: one was given a token as an argument, which is the one value
// that any argument has, and has a file open that is deleted; the other has
// read a secret into its memory and nowhere else. Both go when their input ends.
func (p *planting) plantProcesses() error {
	argument := newCanary()
	gone, err := p.deleted()
	if err != nil {
		return err
	}
	defer gone.Close()
	pid, _, err := p.idle([]*os.File{gone}, "cat >/dev/null; exit", "--token="+argument)
	if err != nil {
		return err
	}
	p.note("argument", procFile(pid, "cmdline"), "the argument of another process", argument)
	p.kind("open").at = []string{procFile(pid, "fd/3")}
	pid, in, err := p.idle(nil, "IFS= read -r secret; cat >/dev/null; exit")
	if err != nil {
		return err
	}
	v := newCanary()
	p.note("memory", strconv.Itoa(pid), "the memory of another process", v)
	_, err = io.WriteString(in, v+"\n")
	return err
}

// idle starts a shell that waits for the end of its input.
func (p *planting) idle(files []*os.File, script string, args ...string) (pid int, in io.Writer, err error) {
	cmd := exec.Command("sh", append([]string{"-c", script, "berm-attack"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	p.undo = append(p.undo, func() {
		pipe.Close()
		cmd.Process.Kill() // it ignores nothing, and holds nothing that is worth a wait
		cmd.Wait()
	})
	return cmd.Process.Pid, pipe, nil
}

// deleted is a file that has no name any more.
func (p *planting) deleted() (*os.File, error) {
	path := filepath.Join(p.dir, "deleted")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	v := newCanary()
	_, err = f.WriteString(v + "\n")
	if rerr := os.Remove(path); err == nil {
		err = rerr
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	p.kind("open").needle = []string{"a deleted file of another process"}
	p.needles = append(p.needles, needle{"a deleted file of another process", v})
	return f, nil
}
