package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// guard runs beside the suite: a process with a canary in its environment for
// programs to look for. It goes when its input ends, and takes away what was
// planted if this process could not: files that are still as they were planted,
// by their sums, and folders that are empty. Settings of the host that a hostile
// program has changed become what they were.
const guard = `trap "" INT TERM HUP QUIT
cat >/dev/null
rm -f -- "$BERM_SOCKET"
cd "$BERM_DIR" || exit
while IFS= read -r line; do
	case $(cat "${line%% = *}" 2>/dev/null) in *` + ownWord + `*) printf '%s\n' "${line#* = }" >"${line%% = *}" ;; esac
done <settings
if command -v sha256sum >/dev/null; then
	sha256sum -c planted 2>/dev/null | sed -n 's/: OK$//p'
else
	sed 's/^[^ ]*  //' planted | while read -r path; do grep -lF "` + canaryWord + `" "$path"; done 2>/dev/null
fi | tr '\n' '\0' | xargs -0 rm -f --
sed -n 's/^dir  //p' planted | sed '1!G;h;$!d' | tr '\n' '\0' | xargs -0 rmdir -- 2>/dev/null
cd /
case $BERM_DIR in /*/` + canaryWord + `*) rm -rf -- "$BERM_DIR" ;; esac`

// hold starts the guard. It comes first, so that it knows of everything.
func (p *planting) hold() error {
	sh, err := exec.LookPath("sh")
	if err != nil {
		return err
	}
	var was strings.Builder
	for _, s := range settings() {
		fmt.Fprintf(&was, "%s = %s\n", s, strings.TrimSpace(readText(s)))
	}
	for path, text := range map[string]string{filepath.Join(p.dir, "settings"): was.String(), p.list(): ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	v := newCanary()
	cmd := exec.Command(sh, "-c", guard, "berm-attack")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "BERM_CANARY=" + v, "BERM_SOCKET=" + p.target.UnixPath, "BERM_DIR=" + p.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.holder, p.release, p.target.HolderPID = cmd, in, cmd.Process.Pid
	p.note("environ", procFile(cmd.Process.Pid, "environ"), "the environment of another process", v)
	return nil
}

// list is where the guard finds what was planted: a sum and a path, or dir and
// a path, a line.
func (p *planting) list() string { return filepath.Join(p.dir, "planted") }

// tell adds a line to it. A path that is no line is left to uproot.
func (p *planting) tell(line string) {
	f, err := os.OpenFile(p.list(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer f.Close()
	f.WriteString(line + "\n")
}
