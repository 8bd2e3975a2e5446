package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// caps are the limits of every program; its own flags come after and win.
var caps = []string{"--timeout", "15m", "--memory", "3g", "--cpus", "2", "--pids", "1024", "--disk", "4g", "--output-limit", "4m"}

// runInside runs p in a sandbox.
func runInside(ctx context.Context, o options, p program) result {
	if p.port != "" {
		return serveInside(ctx, o, p)
	}
	args := append([]string{"run", "--json", "--template", o.template}, caps...)
	args = append(args, p.flags...)
	for _, n := range p.net {
		args = append(args, "--allow", "preset:"+n)
	}
	if ca := authorities(); ca != "" && len(p.net) > 0 {
		args = append(args, "--in", ca+":"+caFile)
		for _, v := range caSettings() {
			args = append(args, "--env", v)
		}
	}
	args = append(append(args, "--"), shell(p.script)...)
	cmd := o.command(ctx, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{err: err}
	}
	var report struct {
		Stdout   string   `json:"stdout"`
		Stderr   string   `json:"stderr"`
		ExitCode int      `json:"exit_code"`
		Ending   string   `json:"ending"`
		Caps     []string `json:"caps_hit"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return result{err: fmt.Errorf("berm run: %s", strings.TrimSpace(complaint.String()))}
	}
	r := result{lines: p.lines(report.Stdout), code: report.ExitCode, took: took}
	if report.Ending != "exit" {
		r.lines = append(r.lines, fmt.Sprintf("ended by %s, caps %v", report.Ending, report.Caps))
	}
	if os.Getenv("COMPAT_STDERR") != "" {
		fmt.Fprintln(os.Stderr, report.Stderr)
	}
	return r
}

func (o options) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.berm, args...)
	if o.state != "" {
		cmd.Env = append(os.Environ(), "BERM_STATE="+o.state)
	}
	return cmd
}

// serveInside starts a daemon, a server in a sandbox of it, and asks through
// `berm port`.
func serveInside(ctx context.Context, o options, p program) (r result) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	daemon := o.command(ctx, "serve", "--listen", "127.0.0.1:0")
	ready, err := daemon.StdoutPipe()
	if err != nil {
		return result{err: err}
	}
	if err := daemon.Start(); err != nil {
		return result{err: err}
	}
	defer func() { daemon.Process.Signal(os.Interrupt); daemon.Wait() }()
	if _, err := ready.Read(make([]byte, 256)); err != nil {
		return result{err: fmt.Errorf("berm serve: %w", err)}
	}
	go io.Copy(io.Discard, ready)
	began := time.Now()
	out, err := o.command(ctx, "create", "--template", o.template, "--memory", "1g").Output()
	if err != nil {
		return result{err: fmt.Errorf("berm create: %w", err)}
	}
	id := strings.TrimSpace(string(out))
	defer o.command(context.WithoutCancel(ctx), "kill", id).Run()
	if err := o.command(ctx, "exec", "--detach", id, "--", "bash", "-eu", "-c", p.script).Run(); err != nil {
		return result{err: fmt.Errorf("berm exec: %w", err)}
	}
	local, err := freePort()
	if err != nil {
		return result{err: err}
	}
	door := o.command(ctx, "port", id, p.port, "--local", local)
	if err := door.Start(); err != nil {
		return result{err: err}
	}
	defer func() { door.Process.Signal(os.Interrupt); door.Wait() }()
	answer, err := get("http://127.0.0.1:" + local + "/")
	return result{lines: p.lines(answer), took: time.Since(began), err: err}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// export unpacks the template for the native side.
func export(ctx context.Context, o options) (dir string, done func(), err error) {
	if dir, err = os.MkdirTemp("", "compat-tree-"); err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(dir) }
	from := o.template
	if !strings.HasSuffix(from, ".tar") {
		from = filepath.Join(dir, "tree.tar")
		fmt.Println("exporting the template for the native side")
		if b, err := o.command(ctx, "template", "export", o.template, "--format", "tar", "-o", from).CombinedOutput(); err != nil {
			done()
			return "", nil, fmt.Errorf("export %s: %w: %s", o.template, err, b)
		}
	}
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		done()
		return "", nil, err
	}
	if b, err := exec.CommandContext(ctx, "tar", "-C", tree, "--numeric-owner", "-xpf", from).CombinedOutput(); err != nil {
		done()
		return "", nil, fmt.Errorf("unpack %s: %w: %s", from, err, b)
	}
	if from != o.template {
		os.Remove(from)
	}
	return tree, done, nil
}
