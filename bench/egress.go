package bench

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

//go:embed egress.py
var egressClient string

// What one round moves.
const (
	egressBytes = 256 << 20
	egressConns = 200
)

// A network is one way from a client program to a server: the same program asks
// the same server over each.
type network struct {
	name string
	addr netAddr
	run  func(ctx context.Context, args ...string) ([]byte, error)

	in, out, manyIn, manyOut []float64 // MiB/s, as the client sees it
	conn                     []float64 // ms
}

type netAddr struct{ host, port string }

// Egress measures the wire: a transfer over one connection and over fifty, and
// short connections, from inside a sandbox to a server on this host,
// against the same client without a sandbox, and against gVisor's own network
// stack over a veth pair where that can be made. If ctx ends it, the report has
// the rounds that were finished.
func Egress(ctx context.Context, o Options) (Report, error) {
	doc, err := o.Client.Doctor(ctx)
	if err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "berm-bench-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "egress.py")
	if err := os.WriteFile(script, []byte(egressClient), 0o644); err != nil {
		return Report{}, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // runsc's user reads it
		return Report{}, err
	}
	host, err := ownAddress()
	if err != nil {
		return Report{}, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return Report{}, err
	}
	defer l.Close()
	go serveBulk(l)
	loop := address(l)

	sb, err := o.Client.Create(ctx, api.CreateRequest{Template: o.Template, RunID: o.RunID,
		Limits: api.Limits{TimeoutSeconds: 1800, CPUs: api.Unlimited},
		Egress: json.RawMessage(fmt.Sprintf(`[{"allow":"%s/32:%s"}]`, loop.host, loop.port))})
	if err != nil {
		return Report{}, err
	}
	defer o.Client.Delete(context.WithoutCancel(ctx), sb.SandboxID)
	ours := &network{name: "berm", addr: loop, run: func(ctx context.Context, args ...string) ([]byte, error) {
		var out, errs strings.Builder
		res, err := o.Client.Exec(ctx, sb.SandboxID, api.ExecRequest{Args: append([]string{"python3", "-c", egressClient}, args...)},
			client.Stdio{Stdout: &out, Stderr: &errs})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("client in the sandbox: %s, exit code %d: %.300s", res.Ending, res.ExitCode, errs.String())
		}
		return []byte(out.String()), err
	}}
	plain := &network{name: "plain loopback", addr: loop, run: func(ctx context.Context, args ...string) ([]byte, error) {
		return output(exec.CommandContext(ctx, "python3", append([]string{script}, args...)...))
	}}
	all := []*network{plain, ours}
	own, err := newRunscNet(dir, script, o.Runsc)
	if err != nil {
		o.note("gVisor's own network is not compared: " + err.Error())
	} else {
		defer own.close()
		all = append(all, own.network)
	}
	if _, err := ours.times(ctx, "conns", "1"); err != nil {
		return Report{}, fmt.Errorf("%s: %w", ours.name, err)
	}
	fresh := gateways{"gateway, idle after one connection", gatewayMemory(sb.SandboxID)}
	if done, err := rounds(ctx, o, all); err != nil {
		if ctx.Err() == nil || done == 0 {
			return Report{}, err
		}
		return Report{Host: doc.Host, Rows: egressRows(ours, all, fresh)}, err
	}
	o.note("waiting for the gateway to give memory back")
	select {
	case <-time.After(20 * time.Second):
	case <-ctx.Done():
		return Report{Host: doc.Host, Rows: egressRows(ours, all, fresh)}, ctx.Err()
	}
	return Report{Host: doc.Host, Rows: egressRows(ours, all, fresh, gateways{"gateway, idle after all that", gatewayMemory(sb.SandboxID)})}, nil
}

// rounds measures all networks in turn. If it ends early, those rounds remain that
// every network has finished; done is how many.
func rounds(ctx context.Context, o Options, all []*network) (done int, err error) {
	for i := range o.Rounds + 1 {
		for _, n := range all {
			what := fmt.Sprintf("round %d of %d", i, o.Rounds)
			if i == 0 {
				what = "a round that does not count"
			}
			o.note(what + ": " + n.name)
			if err := n.measure(ctx); err != nil {
				for _, n := range all {
					n.keep(done)
				}
				return done, fmt.Errorf("%s: %w", n.name, err)
			}
			if i == 0 { // it warmed caches up
				n.keep(0)
			}
		}
		done = i
	}
	return done, nil
}

// keep forgets all but the first rounds.
func (n *network) keep(rounds int) {
	for _, l := range []*[]float64{&n.in, &n.out, &n.manyIn, &n.manyOut, &n.conn} {
		*l = (*l)[:min(len(*l), rounds)]
	}
}

// gateways are what those of a sandbox take when they have nothing to do, in MiB.
type gateways struct {
	name string
	mib  []float64
}

// egressRows are the figures of all networks, ours against each of the others.
func egressRows(ours *network, all []*network, memory ...gateways) (rows []Row) {
	for _, f := range []struct {
		name, unit string
		of         func(*network) []float64
	}{
		{"one stream in", "MiB/s", func(n *network) []float64 { return n.in }},
		{"one stream out", "MiB/s", func(n *network) []float64 { return n.out }},
		{"50 streams in", "MiB/s", func(n *network) []float64 { return n.manyIn }},
		{"50 streams out", "MiB/s", func(n *network) []float64 { return n.manyOut }},
		{"connections", "1/s", func(n *network) []float64 { return perSecond(n.conn) }},
		{"connection", "ms", func(n *network) []float64 { return n.conn }},
	} {
		for _, n := range all {
			if n != ours {
				base := row(n.name+", "+f.name, f.unit, f.of(n))
				r := row(ours.name+", "+f.name, f.unit, f.of(ours))
				r.Baseline, r.RatioP50 = base.Name, ratio(f.of(ours), f.of(n))
				rows = append(rows, base, r)
			}
		}
	}
	var added []float64
	for i := range min(len(ours.conn), len(all[0].conn)) {
		added = append(added, ours.conn[i]-all[0].conn[i])
	}
	rows = append(rows, row("added to a connection", "ms", added))
	for _, m := range memory {
		if len(m.mib) > 0 {
			rows = append(rows, row(m.name, "MiB", m.mib))
		}
	}
	return rows
}

// ownAddress is one of this host's that a sandbox does not take for its own, as
// it does with 127.0.0.1. What goes there stays on this host all the same.
func ownAddress() (string, error) {
	c, err := net.Dial("udp4", "192.0.2.1:9") // sends nothing
	if err != nil {
		return "", fmt.Errorf("this host has no IPv4 address besides its loopback, and a sandbox cannot ask for that: %w", err)
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}

func perSecond(ms []float64) (out []float64) {
	for _, v := range ms {
		out = append(out, 1000/v)
	}
	return out
}

// measure is one round of one network. A connection counts with the median of
// the round's, so that rounds can be compared one by one.
func (n *network) measure(ctx context.Context) error {
	for _, b := range []struct {
		what    string
		streams int
		to      *[]float64
	}{{"get", 1, &n.in}, {"put", 1, &n.out}, {"get", 50, &n.manyIn}, {"put", 50, &n.manyOut}} {
		t, err := n.times(ctx, b.what, strconv.Itoa(b.streams), strconv.Itoa(egressBytes))
		if err != nil {
			return err
		}
		*b.to = append(*b.to, float64(egressBytes>>20)/t[0])
	}
	t, err := n.times(ctx, "conns", strconv.Itoa(egressConns))
	if err != nil {
		return err
	}
	n.conn = append(n.conn, row("", "", t).P50*1000)
	return nil
}

func (n *network) times(ctx context.Context, args ...string) ([]float64, error) {
	out, err := n.run(ctx, append([]string{n.addr.host, n.addr.port}, args...)...)
	if err != nil {
		return nil, err
	}
	var t []float64
	if err := json.Unmarshal(out, &t); err != nil || len(t) == 0 || t[0] <= 0 {
		return nil, fmt.Errorf("the client printed %.100q", out)
	}
	return t, nil
}

// output is what a command printed; with an error, what it complained of.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		err = fmt.Errorf("%w: %.300s", err, ee.Stderr)
	}
	return out, err
}

func address(l net.Listener) netAddr {
	host, port, _ := net.SplitHostPort(l.Addr().String())
	return netAddr{host, port}
}

// serveBulk answers "get N" with N bytes, takes the N bytes behind "put N", and
// answers "ping" with "pong".
func serveBulk(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			r := bufio.NewReaderSize(c, 64)
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == "ping\n" {
				c.Write([]byte("pong\n"))
				return
			}
			var left int64
			if _, err := fmt.Sscanf(line, "put %d\n", &left); err == nil {
				left -= int64(r.Buffered())
				r.Discard(r.Buffered())
				for buf := make([]byte, 1<<20); left > 0; {
					k, err := c.Read(buf)
					if err != nil {
						return
					}
					left -= int64(k)
				}
				c.Write([]byte("ok\n"))
				return
			}
			if _, err := fmt.Sscanf(line, "get %d\n", &left); err != nil {
				return
			}
			buf := make([]byte, 1<<20)
			for left > 0 {
				k, err := c.Write(buf[:min(int64(len(buf)), left)])
				if err != nil {
					return
				}
				left -= int64(k)
			}
		}()
	}
}

// gatewayMemory is the proportional set size, in MiB, of the gateways of a
// sandbox: the processes of that name in its control group.
func gatewayMemory(id string) (out []float64) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		cmd, err := os.ReadFile(p + "/cmdline")
		if err != nil || !strings.HasPrefix(string(cmd), "berm-gateway\x00") {
			continue
		}
		if groups, err := os.ReadFile(p + "/cgroup"); err != nil || !strings.Contains(string(groups), id) {
			continue
		}
		rollup, err := os.ReadFile(p + "/smaps_rollup")
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(rollup), "\n") {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				if kb, err := strconv.ParseFloat(f[1], 64); err == nil {
					out = append(out, kb/1024)
				}
			}
		}
	}
	return out
}
