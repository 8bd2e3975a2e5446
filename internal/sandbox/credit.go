package sandbox

import (
	"syscall"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// A credit says how far the guest's word is believed about one exec. Its agent
// may be in the hands of what it runs, so each claim is held against what the
// host knows:
//
//   - exit code, signal, "not started": believed. Nobody else knows them, and a
//     program can give itself any of them.
//   - "memory", as an ending or a cap: there is a cap, and the host's cgroup
//     killed, or its high-water mark came to 3/4 of the cap. The watcher inside
//     acts at 97 % as the guest counts, and the host counts more than that.
//     Where the kernel keeps no mark, the samples must have seen half of the
//     cap, or the exec was too short for samples.
//   - "processes": believed where there is a cap. The host counts the runtime's
//     tasks, not the guest's; a lie gives a program nothing but a worse ending.
//   - "disk", a cap only: a sample during the exec saw half of the cap in use,
//     or the exec was too short for samples. What is written and deleted
//     between two samples still went through the page cache, which is in the
//     cgroup's high-water mark: that much there does as well.
//   - "timeout": there is one, and it is over. The agent's own clock runs a
//     little longer than the one in here, so this is the word of a time when
//     nobody was here.
//   - "output": of a kept exec. A lie gives a program nothing but a worse ending.
//   - "killed": never. Who has asked for that is known here, and then the
//     guest's word is not needed.
//   - peaks: clamped to the limits; memory and disk only where no meter is.
//
// What is not believed of an ending becomes signal 9: killed it was, says the
// guest, and not by us. A meter that knows no such figure contradicts nothing.
type credit struct{ memory, processes, disk, timeout, output bool }

// credit weighs what the host saw of x; oom and tasks are its caps' own word.
func (x *execution) credit(oom, tasks bool) credit {
	b := x.b
	b.mu.Lock()
	defer b.mu.Unlock()
	g, l := &b.usage, b.spec.Limits
	brief := x.over.Sub(later(x.began, x.ran)) < 2*x.e.opt.Sample
	unmetered := b.meter == nil || !g.measures
	memory := unmetered || oom || g.memory >= l.MemoryBytes/4*3
	if !g.peaks {
		memory = memory || brief || g.memory >= l.MemoryBytes/2
	}
	disk := unmetered || brief || x.disk >= l.DiskBytes/2
	if cached := l.DiskBytes / 2; g.peaks {
		if l.MemoryBytes > 0 {
			cached = min(cached, l.MemoryBytes/4*3) // the cache is given back there
		}
		disk = disk || g.memory >= cached
	}
	return credit{
		memory:    l.MemoryBytes > 0 && memory,
		processes: l.Pids > 0 || tasks,
		disk:      l.DiskBytes > 0 && disk,
		timeout:   x.timeout > 0 && x.over.Sub(x.began) >= x.timeout,
		output:    x.kept > 0,
	}
}

// exit is what of an exit is believed.
func (k credit) exit(x guest.Exit) guest.Exit {
	switch {
	case x.EndedBy == guest.EndedMemory && k.memory, x.EndedBy == guest.EndedProcesses && k.processes,
		x.EndedBy == guest.EndedTimeout && k.timeout, x.EndedBy == guest.EndedOutput && k.output:
	case x.EndedBy != "":
		x.EndedBy, x.Signal = "", int(syscall.SIGKILL)
	}
	return x
}

// caps are those of names that are believed.
func (k credit) caps(names []string) (out []string) {
	for _, n := range names {
		if n == guest.CapMemory && k.memory || n == guest.CapProcesses && k.processes || n == guest.CapDisk && k.disk {
			out = append(out, n)
		}
	}
	return out
}

// heard keeps the peaks that only the guest knows.
func (b *box) heard(x guest.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.spec.Limits
	b.usage.guestPids = max(b.usage.guestPids, capped(x.PidsPeak, l.Pids))
	if b.meter == nil {
		b.usage.memory = max(b.usage.memory, capped(x.MemoryPeak, l.MemoryBytes))
		b.usage.disk = max(b.usage.disk, capped(x.DiskPeak, l.DiskBytes))
	}
}

// capped is n as far as limit allows; without a limit it is not believed when
// no machine has that much.
func capped(n, limit int64) int64 {
	if limit > 0 {
		return min(n, limit)
	}
	if n >= 1<<50 {
		return 0
	}
	return n
}

// sample is box.sample on behalf of x.
func (x *execution) sample() {
	disk, full := x.b.sample()
	x.disk = max(x.disk, disk)
	if full {
		x.caps.add(api.CapDisk)
	}
}
