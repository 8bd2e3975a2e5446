package gvisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

const fixRoot = "sudo berm ..."

// Walls says which walls this host can hold up, as tried and not as configured.
func (b *Backend) Walls(ctx context.Context) ([]api.Wall, error) {
	f, err := b.keeper.Facts(ctx, true)
	if err != nil {
		return nil, err
	}
	holds := func(name, how string) api.Wall { return api.Wall{Name: name, Holds: true, Reason: how} }
	cap := func(name, ctrl, flag, how string) api.Wall {
		if why := f.Missing[ctrl]; why != "" {
			return api.Wall{Name: name, Reason: why + " (--" + flag + "=unlimited accepts it)", Fix: f.WayOut}
		}
		if f.Groups != "" {
			return api.Wall{Name: name, Reason: f.Groups, Fix: f.WayOut}
		}
		return holds(name, how)
	}
	version := "v1"
	if f.CgroupV2 {
		version = "v2"
	}
	own := holds("own-uid", "each sandbox runs as a host uid that nothing else has")
	if f.OwnUIDs != "" {
		own = api.Wall{Name: "own-uid", Reason: f.OwnUIDs, Fix: fixRoot}
	}
	disk := holds("disk", strings.Join(append([]string{"one writable layer of fixed size in an unlinked file of the state directory"}, f.Notes...), "; "))
	if f.State != "" {
		disk = api.Wall{Name: "disk", Reason: f.State, Fix: "berm --state DIR ..., with a directory that can be written"}
	}
	return []api.Wall{
		holds("environment", "a new root per sandbox: a read-only image and an empty writable layer; no host path is in its mount namespace"),
		holds("credentials", "nothing of the host's environment, files, agents or sockets goes in but what flags name"),
		holds("network", "an empty network namespace: loopback inside, and where a policy asks for it one wire, to a gateway without sockets"),
		cap("memory", "memory", "memory", "cgroup "+version+" memory limit from birth, gVisor's own memory included"),
		cap("processes", "pids", "pids", "a limit inside, and a cgroup "+version+" task limit around all of it"),
		cap("cpu", "cpu", "cpus", "cgroup "+version+" cpu quota"),
		disk,
		holds("time", "the engine ends each exec; the keeper kills what outlives its deadline"),
		holds("output", "bounded by the engine: middle dropped at the limit, ended at 64 times of it"),
		own,
		holds("privileges", "user namespace without capabilities, seccomp, no-new-privileges, /proc covered"),
		holds("teardown", "owner records before resources; a keeper that dies takes its sandboxes with it"),
	}, nil
}

// Leaks lists what ended sandboxes have left.
func (b *Backend) Leaks(ctx context.Context) ([]api.Leak, error) {
	f, err := b.keeper.Facts(ctx, true)
	if err != nil {
		return nil, err
	}
	out := make([]api.Leak, 0, len(f.Leaks))
	for _, l := range f.Leaks {
		out = append(out, api.Leak(l))
	}
	return out, nil
}

// HostFacts are the facts of this host that make a sandbox with these limits
// weaker than its rung says; every answer carries them.
func (b *Backend) HostFacts(ctx context.Context, l api.Limits) ([]string, error) {
	f, err := b.keeper.Facts(ctx, false)
	if err != nil {
		return nil, err
	}
	out := []string{}
	if f.Rootless {
		out = append(out, "rootless: sandboxes have the host uid of the user who called berm")
	}
	if len(f.Missing) > 0 {
		names := slices.Sorted(maps.Keys(f.Missing))
		out = append(out, "no cgroups for "+strings.Join(names, ", ")+": not capped as accepted, and not measured")
	}
	out = append(out, f.Notes...)
	if l.DiskBytes > f.StateFree {
		out = append(out, fmt.Sprintf("state directory: %d bytes are free, fewer than the disk cap: the guest may see a full disk before", f.StateFree))
	}
	for _, v := range f.CPU {
		out = append(out, "cpu: "+v)
	}
	return out, nil
}
