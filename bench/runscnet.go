package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A runscNet is gVisor's own network: its stack on one end of a veth pair, the
// server behind the other. Both ends are in namespaces of this benchmark's own.
type runscNet struct {
	*network
	dir, script, runsc string
	server             *exec.Cmd // holds the server's namespace
	l                  net.Listener
	n                  int
}

const (
	runscServerIP = "192.0.2.1"
	runscClientIP = "192.0.2.2"
)

func newRunscNet(dir, script, runsc string) (*runscNet, error) {
	if os.Geteuid() != 0 || runsc == "" {
		return nil, errors.New("it needs root")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w (try: apt-get install iproute2 util-linux)", err)
		}
	}
	r := &runscNet{dir: dir, script: script, runsc: runsc}
	var err error
	if r.server, err = holder(); err != nil {
		return nil, err
	}
	if r.l, err = listenIn(r.server.Process.Pid, "0.0.0.0:0"); err != nil {
		r.close()
		return nil, err
	}
	go serveBulk(r.l)
	a := address(r.l)
	r.network = &network{name: "gVisor's own", addr: netAddr{runscServerIP, a.port}, run: r.run}
	if _, err := r.run(context.Background(), runscServerIP, a.port, "conns", "1"); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *runscNet) close() {
	if r.l != nil {
		r.l.Close()
	}
	release(r.server)
}

// run starts the client in a fresh namespace: runsc takes the addresses of the
// one that it gets.
func (r *runscNet) run(ctx context.Context, args ...string) ([]byte, error) {
	client, err := holder()
	if err != nil {
		return nil, err
	}
	defer release(client)
	s, c := strconv.Itoa(r.server.Process.Pid), strconv.Itoa(client.Process.Pid)
	r.n++
	if r.n > 1 { // the pair of the round before goes with its namespace, but not at once
		exec.CommandContext(ctx, "nsenter", "--target", s, "--net", "ip", "link", "del", "veth0").Run()
	}
	for _, line := range [][]string{
		{s, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", c},
		{s, "addr", "add", runscServerIP + "/24", "dev", "veth0"},
		{s, "link", "set", "veth0", "up"},
		{c, "addr", "add", runscClientIP + "/24", "dev", "veth0"},
		{c, "link", "set", "veth0", "up"},
		{c, "link", "set", "lo", "up"},
	} {
		cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", line[0], "--net", "ip"}, line[1:]...)...)
		if _, err := output(cmd); err != nil {
			return nil, fmt.Errorf("ip %v: %w", line[1:], err)
		}
	}
	bundle, err := os.MkdirTemp(r.dir, "bundle-")
	if err != nil {
		return nil, err
	}
	type m = map[string]any
	spec, err := json.Marshal(m{
		"ociVersion": "1.1.0",
		"process": m{
			"user": m{"uid": 1000, "gid": 1000}, "args": append([]string{"python3", r.script}, args...), "cwd": "/", "noNewPrivileges": true,
			"env": []string{"PATH=" + os.Getenv("PATH")}, "capabilities": m{},
		},
		"root":     m{"path": "/", "readonly": true}, // the program is our own
		"hostname": "bench",
		"mounts":   []m{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux": m{"namespaces": []m{{"type": "pid"}, {"type": "network", "path": "/proc/" + c + "/ns/net"},
			{"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, r.runsc)
	cmd.Args = []string{"runsc", "--root=" + filepath.Join(r.dir, "state"), "--network=sandbox", "--overlay2=root:memory",
		"--ignore-cgroups", "run", "-bundle", bundle, fmt.Sprintf("bench-net-%d-%d", os.Getpid(), r.n)}
	out, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("runsc: %w", err)
	}
	return out, nil
}

// holder is a process that keeps a network namespace alive. It ends with us,
// however we end: its input does.
func holder() (*exec.Cmd, error) {
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return cmd, nil
}

func release(cmd *exec.Cmd) {
	if cmd != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// listenIn listens in the network namespace of another process.
func listenIn(pid int, addr string) (l net.Listener, err error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	done := make(chan struct{})
	go func() { // the thread is not given back: it is in the other namespace
		defer close(done)
		runtime.LockOSThread()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err == nil {
			l, err = net.Listen("tcp", addr)
		}
	}()
	<-done
	return l, err
}
