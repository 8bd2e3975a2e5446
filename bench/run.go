package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Run measures a cold run. BASE is gVisor's runsc with a gofer on a folder that
// holds the same files as the template, and no caps at all: it does less.
func Run(ctx context.Context, o Options) (Report, error) {
	note := o.Note
	if note == nil {
		note = func(string) {}
	}
	doc, err := o.Client.Doctor(ctx)
	if err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "berm-bench-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root")
	note("copying the template's files out, for runsc to run on")
	began := time.Now()
	if err := copyRoot(ctx, o, root); err != nil {
		return Report{}, fmt.Errorf("copy the template out: %w", err)
	}
	syscall.Sync() // what was copied is written out now and not while the race is on
	note(fmt.Sprintf("done in %.1f s; %d rounds", time.Since(began).Seconds(), o.Rounds))

	var cs []*contestant
	for _, p := range []struct {
		name string
		argv []string
	}{
		{"true", []string{"/bin/true"}},
		{"python3 -c pass", []string{"/usr/bin/python3", "-c", "pass"}},
	} {
		if _, err := os.Stat(filepath.Join(root, p.argv[0])); err != nil {
			note("skipped " + p.name + ": not in the template")
			continue
		}
		base, err := runsc(dir, root, p.name, p.argv, o.Runsc)
		if err != nil {
			return Report{}, err
		}
		native := &contestant{name: "native " + p.name, path: p.argv[0], argv: p.argv}
		ours := &contestant{
			name: "berm run " + p.name, path: o.Berm, argv: append(o.argv(), p.argv...),
			against: []string{base.name, native.name},
		}
		group := []*contestant{base, ours, native}
		if err := race(ctx, o.Rounds, group); err != nil {
			return Report{}, err
		}
		cs = append(cs, group...)
	}
	return Report{Host: doc.Host, Rows: rows(cs)}, nil
}

func (o Options) argv() []string {
	argv := []string{"berm"}
	if o.StateDir != "" {
		argv = append(argv, "--state", o.StateDir)
	}
	return append(argv, "run", "--")
}

// runsc is the baseline for one command: a bundle of its own.
func runsc(dir, root, name string, argv []string, program string) (*contestant, error) {
	bundle, err := os.MkdirTemp(dir, "bundle-")
	if err != nil {
		return nil, err
	}
	type m = map[string]any
	spec, err := json.Marshal(m{
		"ociVersion": "1.1.0",
		"process": m{
			"user": m{"uid": 1000, "gid": 1000}, "args": argv, "cwd": "/workspace", "noNewPrivileges": true,
			"env": []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent"}, "capabilities": m{},
		},
		"root":     m{"path": root},
		"hostname": "bench",
		"mounts": []m{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
		},
		"linux": m{"namespaces": []m{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o644); err != nil {
		return nil, err
	}
	return &contestant{
		name: "runsc run " + name, path: program,
		argv: []string{"runsc", "--root=" + filepath.Join(dir, "state"), "--network=none", "--overlay2=root:memory",
			"--ignore-cgroups", "run", "-bundle", bundle, "bench-" + filepath.Base(bundle)},
	}, nil
}
