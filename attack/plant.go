package attack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// canaryWord is in every planted value and, where one is made, in every planted
// name.
const canaryWord = "berm-canary-"

func newCanary() string { return canaryWord + strings.ToLower(rand.Text()) }

// A planting is all that was put on the host for one run of the suite, and how
// to take it away again.
type planting struct {
	word    string // the random part of names
	needles []needle
	files   []planted
	dirs    []string // made for the files, deepest last
	vars    []string // variables that were set
	holder  *exec.Cmd
	release io.Closer // its end lets the holder go
	dir     string    // for what cases bring out

	target target
}

// A planted file and what it was like when it was planted.
type planted struct {
	path  string
	value string
	info  fs.FileInfo
}

// A target is what programs are told: places and addresses, never a value.
type target struct {
	TmpFile    string `json:"tmpfile"`
	VarTmpFile string `json:"vartmpfile"`
	Home       string `json:"home"`
	HolderPID  int    `json:"holder_pid"`
	InheritFD  int    `json:"inherit_fd"`
	UnixPath   string `json:"unix_path"`
	Abstract   string `json:"abstract"`
	TCP4       int    `json:"tcp4"`
	TCP6       int    `json:"tcp6"`
	UDP4       int    `json:"udp4"`
}

// credentialFiles are where tools keep what they log in with, below a home.
var credentialFiles = []struct{ path, text string }{
	{".aws/credentials", "[berm-canary]\naws_access_key_id = none\naws_secret_access_key = %s\n"},
	{".ssh/id_berm_canary", "-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n-----END OPENSSH PRIVATE KEY-----\n"},
	{".netrc", "machine berm-canary.invalid login none password %s\n"},
	{".git-credentials", "https://none:%s@berm-canary.invalid\n"},
	{".config/gh/hosts.yml", "berm-canary.invalid:\n    oauth_token: %s\n"},
	{".docker/config.json", "{\"auths\":{\"berm-canary.invalid\":{\"auth\":\"%s\"}}}\n"},
	{".kube/config", "users:\n- name: berm-canary\n  user:\n    token: %s\n"},
}

// credentialVars are variables that tools take credentials from.
var credentialVars = []string{"BERM_CANARY", "AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "OPENAI_API_KEY"}

// plant puts everything in place, or nothing.
func plant() (_ *planting, err error) {
	p := &planting{word: newCanary()}
	defer func() {
		if err != nil {
			p.uproot()
		}
	}()
	for _, f := range []struct {
		dir string
		at  *string
	}{{"/tmp", &p.target.TmpFile}, {"/var/tmp", &p.target.VarTmpFile}} {
		*f.at = filepath.Join(f.dir, p.word)
		if err := p.file(*f.at, "%s\n", 0o644); err != nil {
			return nil, err
		}
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		p.target.Home = home
		for _, f := range credentialFiles {
			if err := p.credential(home, f.path, f.text); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range credentialVars {
		if _, taken := os.LookupEnv(name); taken {
			continue
		}
		v := newCanary()
		p.needles = append(p.needles, needle{"the variable " + name, v})
		p.vars = append(p.vars, name)
		os.Setenv(name, v)
	}
	if p.dir, err = os.MkdirTemp("", canaryWord); err != nil {
		return nil, err
	}
	p.target.UnixPath = filepath.Join("/tmp", p.word+".sock") // made by setLure
	if err := p.hold(); err != nil {
		return nil, err
	}
	p.needles = append(p.needles, hostFacts()...)
	return p, nil
}

// credential plants below home: under the name that tools use if that is free,
// else beside it, so that nothing of the user's is touched.
func (p *planting) credential(home, path, text string) error {
	parts := strings.Split(path, "/")
	for i := 1; i < len(parts); i++ {
		at := filepath.Join(home, filepath.Join(parts[:i]...))
		if err := os.Mkdir(at, 0o700); err == nil {
			p.dirs = append(p.dirs, at)
		} else if !errors.Is(err, fs.ErrExist) {
			return nil // a home that cannot be written has nothing to plant in
		}
	}
	full := filepath.Join(home, path)
	if err := p.file(full, text, 0o600); errors.Is(err, fs.ErrExist) {
		return p.file(filepath.Join(filepath.Dir(full), "."+p.word+"-"+filepath.Base(path)), text, 0o600)
	} else if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	} else {
		return err
	}
}

// file plants one file with a value of its own.
func (p *planting) file(path, text string, mode fs.FileMode) error {
	v := newCanary()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	pl := planted{path: path, value: fmt.Sprintf(text, v)}
	_, err = f.WriteString(pl.value)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		pl.info, err = f.Stat()
	}
	p.files = append(p.files, pl)
	p.needles = append(p.needles, needle{"the canary of " + path, v})
	return err
}

// guard runs beside the suite: a process with a canary in its environment and
// an open file, for programs to look for. It goes when its input ends, and
// takes away what was planted if this process could not.
const guard = `trap "" INT TERM HUP QUIT
cat >/dev/null
n=$1; shift
while [ "$n" -gt 0 ]; do
	if grep -qF "` + canaryWord + `" "$1" 2>/dev/null; then rm -f -- "$1"; fi
	n=$((n - 1)); shift
done
rm -f -- "$BERM_SOCKET"
case $BERM_DIR in /*/` + canaryWord + `*) rm -rf -- "$BERM_DIR" ;; esac
for d; do rmdir -- "$d" 2>/dev/null; done`

func (p *planting) hold() error {
	sh, err := exec.LookPath("sh")
	if err != nil {
		return err
	}
	v := newCanary()
	p.needles = append(p.needles, needle{"the environment of another process", v})
	args := []string{"-c", guard, "berm-attack", strconv.Itoa(len(p.files))}
	for _, f := range p.files {
		args = append(args, f.path)
	}
	for i := len(p.dirs) - 1; i >= 0; i-- {
		args = append(args, p.dirs[i])
	}
	cmd := exec.Command(sh, args...)
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
	return nil
}

// touched says which planted files are no longer as they were planted.
func (p *planting) touched() (out []string) {
	for _, f := range p.files {
		b, err := os.ReadFile(f.path)
		if err != nil {
			out = append(out, f.path+" is gone or unreadable")
			continue
		}
		fi, err := os.Lstat(f.path)
		if err != nil || string(b) != f.value || fi.Mode() != f.info.Mode() ||
			!fi.ModTime().Equal(f.info.ModTime()) || !os.SameFile(fi, f.info) {
			out = append(out, f.path+" was altered")
		}
	}
	return out
}

// uproot takes everything away again. What somebody else has written into a
// planted file since is left to them.
func (p *planting) uproot() {
	for _, name := range p.vars {
		os.Unsetenv(name)
	}
	for _, f := range p.files {
		if b, err := os.ReadFile(f.path); err == nil && string(b) == f.value {
			os.Remove(f.path)
		}
	}
	for i := len(p.dirs) - 1; i >= 0; i-- {
		os.Remove(p.dirs[i])
	}
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
	if p.holder != nil {
		p.release.Close()
		late := time.AfterFunc(5*time.Second, func() { p.holder.Process.Kill() })
		p.holder.Wait()
		late.Stop()
	}
}
