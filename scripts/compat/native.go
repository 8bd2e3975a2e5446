package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A result is what one side printed, and how it ended.
type result struct {
	lines []string
	code  int
	took  time.Duration
	err   error // it could not be run at all
}

const (
	user       = 1000 // as in a sandbox
	longest    = 15 * time.Minute
	mostOutput = 8 << 20
)

// env is what a command has in a sandbox.
func env() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/home/agent/.local/bin",
		"HOME=/home/agent", "USER=agent", "LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "PWD=/workspace"}
}

// runNative runs p on this host's own kernel, in a fresh overlay over the tree.
func runNative(ctx context.Context, o options, p program) result {
	dir, err := os.MkdirTemp("", "compat-")
	if err != nil {
		return result{err: err}
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "native", o.tree, dir, strings.Join(p.net, ","), p.script)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if len(p.net) == 0 && p.port == "" {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	cmd.Env = append(env(), clientSettings(p.net)...)
	if ca := authorities(); ca != "" && len(p.net) > 0 {
		cmd.Env = append(cmd.Env, "COMPAT_CA="+ca)
		cmd.Env = append(cmd.Env, caSettings()...)
	}
	return p.watch(cmd, func() (string, error) { return get("http://127.0.0.1:" + p.port + "/") })
}

// clientSettings are the host's own settings of package managers, which a
// preset gives a sandbox as well.
func clientSettings(net []string) (env []string) {
	ask := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if v := strings.TrimSpace(string(out)); err == nil && v != "undefined" {
			return v
		}
		return ""
	}
	for _, preset := range net {
		switch preset {
		case "pip":
			if v := ask("pip", "config", "get", "global.index-url"); v != "" {
				env = append(env, "PIP_INDEX_URL="+v)
			}
		case "npm":
			if v := ask("npm", "config", "get", "registry"); v != "" {
				env = append(env, "npm_config_registry="+v)
			}
		}
	}
	return env
}

// caFile is where both sides find the certificate authorities of this host: a
// mirror of packages may be signed by one that no distribution knows.
const caFile = "/workspace/.authorities.pem"

func authorities() string {
	for _, f := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"} {
		if _, err := os.Stat(f); f != "" && err == nil {
			return f
		}
	}
	return ""
}

func caSettings() []string {
	return []string{"PIP_CERT=" + caFile, "NODE_EXTRA_CA_CERTS=" + caFile, "SSL_CERT_FILE=" + caFile}
}

// watch runs cmd to its end, or for a server until it was asked.
func (p program) watch(cmd *exec.Cmd, ask func() (string, error)) result {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.Discard
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return result{err: err}
	}
	if p.port == "" {
		err := cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return result{err: err}
		}
		return result{lines: p.lines(out.String()), code: cmd.ProcessState.ExitCode(), took: time.Since(began)}
	}
	answer, err := ask()
	took := time.Since(began)
	cmd.Process.Signal(syscall.SIGKILL)
	cmd.Wait()
	return result{lines: p.lines(answer), took: took, err: err}
}

// get asks until a server answers.
func get(url string) (string, error) {
	var last error
	for range 300 {
		r, err := http.Get(url)
		if err == nil {
			b, err := io.ReadAll(io.LimitReader(r.Body, mostOutput))
			r.Body.Close()
			return fmt.Sprintf("%s\n%s", r.Status, b), err
		}
		last = err
		time.Sleep(100 * time.Millisecond)
	}
	return "", last
}

func (p program) lines(s string) (out []string) {
next:
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n ")
		for _, re := range p.ignore {
			if re.MatchString(line) {
				continue next
			}
		}
		if line != "" {
			out = append(out, line)
		}
	}
	return out
}

// shell is how a script is run on both sides.
func shell(script string) []string { return []string{"bash", "-eu", "-o", "pipefail", "-c", script} }

// native is the first process of the namespaces that runNative makes: it makes
// the root and becomes the program.
func native(args []string) {
	err := enter(args[0], args[1], args[2] != "")
	if err == nil {
		err = syscall.Exec("/bin/bash", shell(args[3]), os.Environ())
	}
	fmt.Fprintln(os.Stdout, "native:", err)
	os.Exit(125)
}

func enter(tree, scratch string, net bool) error {
	root := filepath.Join(scratch, "root")
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(scratch, d), 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return err
	}
	over := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", tree, scratch, scratch)
	if err := syscall.Mount("overlay", root, "overlay", 0, over); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := furnish(root, net); err != nil {
		return err
	}
	if err := syscall.Chroot(root); err != nil {
		return err
	}
	if err := os.Chdir("/workspace"); err != nil {
		return err
	}
	if !net {
		exec.Command("/sbin/ip", "link", "set", "lo", "up").Run()
	}
	syscall.Sethostname([]byte("berm"))
	syscall.Setgroups(nil)
	if err := syscall.Setgid(user); err != nil {
		return err
	}
	return syscall.Setuid(user)
}

// account adds a line to a list of accounts, unless its name is there.
func account(file, line string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(line, ":")
	if strings.Contains("\n"+string(b), "\n"+name+":") {
		return nil
	}
	return os.WriteFile(file, append(b, line+"\n"...), 0o644)
}

// furnish gives a root what a kernel and a container's runtime give.
func furnish(root string, net bool) error {
	at := func(p string) string { return filepath.Join(root, p) }
	for _, d := range []string{"proc", "sys", "dev", "run", "workspace", "home/agent"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"workspace", "home/agent"} {
		if err := os.Chown(at(d), user, user); err != nil {
			return err
		}
	}
	if err := account(at("etc/passwd"), "agent:x:1000:1000:agent:/home/agent:/bin/bash"); err != nil {
		return err
	}
	if err := account(at("etc/group"), "agent:x:1000:"); err != nil {
		return err
	}
	if net {
		b, err := os.ReadFile("/etc/resolv.conf")
		if err != nil {
			return err
		}
		os.Remove(at("etc/resolv.conf"))
		if err := os.WriteFile(at("etc/resolv.conf"), b, 0o644); err != nil {
			return err
		}
	}
	if ca := os.Getenv("COMPAT_CA"); ca != "" {
		b, err := os.ReadFile(ca)
		if err != nil {
			return err
		}
		if err := os.WriteFile(at(caFile), b, 0o644); err != nil {
			return err
		}
	}
	for _, m := range []struct{ what, on, kind, data string }{
		{"proc", "proc", "proc", ""}, {"sys", "sys", "sysfs", ""},
		{"dev", "dev", "tmpfs", "mode=755"}, {"run", "run", "tmpfs", "mode=777"},
	} {
		if err := syscall.Mount(m.what, at(m.on), m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.on, err)
		}
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := os.WriteFile(at("dev/"+d), nil, 0o666); err != nil {
			return err
		}
		if err := syscall.Mount("/dev/"+d, at("dev/"+d), "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", d, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, at("dev/"+name)); err != nil {
			return err
		}
	}
	os.Mkdir(at("dev/pts"), 0o755)
	os.Mkdir(at("dev/shm"), 0o1777)
	if err := syscall.Mount("devpts", at("dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	return syscall.Mount("shm", at("dev/shm"), "tmpfs", 0, "mode=1777")
}
