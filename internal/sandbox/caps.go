package sandbox

import (
	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// capOrder is every cap, in the order in which answers list them.
var capOrder = []string{api.CapMemory, api.CapProcesses, api.CapDisk, api.CapOutput, api.CapTimeout, api.CapTTL, api.CapIdle, api.CapEgress}

// A capSet is the caps that were touched. Names it does not know are dropped:
// some of them come from the guest.
type capSet uint8

func (c *capSet) add(names ...string) {
	for _, n := range names {
		for i, known := range capOrder {
			if n == known {
				*c |= 1 << i
			}
		}
	}
}

func (c capSet) list() []string {
	out := []string{}
	for i, n := range capOrder {
		if c&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

// usage is what a sandbox took so far: the meter's last word and the peaks of
// all samples.
type usage struct {
	last      backend.Usage
	memory    int64
	tasks     int64 // host tasks
	guestPids int64 // as the guest tells it
	disk      int64
	oomKills  int64
	taskFails int64
	peaks     bool // the meter keeps a peak of memory by itself
	measures  bool // the meter knows more than time
}

// diskBlock is how near to its cap the writable layer counts as full.
const diskBlock = 4096

// sample reads the meter and notes which caps it shows as touched. It returns
// what the writable layer takes now, and whether that is all there is.
func (b *box) sample() (disk int64, full bool) {
	if b.meter == nil {
		return 0, false
	}
	u, err := b.meter.Usage()
	if err != nil {
		return 0, false // gone, or on its way: what was seen before stands
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &b.usage
	u.CPU = max(g.last.CPU, u.CPU)
	g.last = u
	g.memory = max(g.memory, u.MemoryPeak, u.MemoryBytes)
	g.tasks = max(g.tasks, u.Tasks)
	g.disk = max(g.disk, u.DiskBytes)
	g.oomKills = max(g.oomKills, u.OOMKills)
	g.taskFails = max(g.taskFails, u.TaskFails)
	g.peaks = g.peaks || u.MemoryPeak > 0
	g.measures = g.measures || max(u.MemoryPeak, u.MemoryBytes, u.Tasks, u.DiskBytes) > 0
	if g.oomKills > 0 {
		b.caps.add(api.CapMemory)
	}
	if g.taskFails > 0 {
		b.caps.add(api.CapProcesses)
	}
	if lim := b.spec.Limits.DiskBytes; lim > 0 && u.DiskBytes >= lim-diskBlock {
		b.caps.add(api.CapDisk)
		return u.DiskBytes, true
	}
	return u.DiskBytes, false
}

// mark is what an exec compares with at its end.
type mark struct{ oomKills, taskFails int64 }

func (b *box) mark() mark {
	b.mu.Lock()
	defer b.mu.Unlock()
	return mark{b.usage.oomKills, b.usage.taskFails}
}

// since adds the caps that the host saw touched after m to c.
func (b *box) since(m mark, c *capSet) (oom, tasks bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	oom, tasks = b.usage.oomKills > m.oomKills, b.usage.taskFails > m.taskFails
	if oom {
		c.add(api.CapMemory)
	}
	if tasks {
		c.add(api.CapProcesses)
	}
	return oom, tasks
}

// figures is the usage as an answer shows it.
func (b *box) figures() api.Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.usage
	pids := g.guestPids
	if pids == 0 {
		pids = capped(g.tasks, b.spec.Limits.Pids) // the runtime's own tasks are among them
	}
	return api.Usage{
		CPUSeconds:      g.last.CPU.Seconds(),
		MemoryPeakBytes: g.memory,
		PidsPeak:        pids,
		DiskPeakBytes:   g.disk,
	}
}
