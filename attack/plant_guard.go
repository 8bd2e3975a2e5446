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
[ -f "$BERM_DIR/planted" ] || exit 0
while IFS= read -r line; do
	case $(cat "${line%% = *}" 2>/dev/null) in *` + ownWord + `*) printf '%s\n' "${line#* = }" >"${line%% = *}" ;; esac
done <"$BERM_DIR/settings"
while read -r sum path; do
	[ "$sum" != dir ] && [ "$(sha256sum <"$path" 2>/dev/null)" = "$sum  -" ] && rm -f -- "$path"
done <"$BERM_DIR/planted"
sed -n '1!G;h;$p' "$BERM_DIR/planted" | while read -r sum path; do
	[ "$sum" = dir ] && rmdir -- "$path" 2>/dev/null
done
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
