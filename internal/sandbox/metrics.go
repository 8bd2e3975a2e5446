package sandbox

import (
	"context"
	"time"

	"github.com/bermhq/berm/api"
)

// look is when metrics were last asked for, and the processor time then.
type look struct {
	at  time.Time
	cpu time.Duration
}

// Metrics says what a sandbox uses now, seen from outside.
func (e *Engine) Metrics(ctx context.Context, id string) (api.Metrics, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.Metrics{}, err
	}
	b.sample()
	b.mu.Lock()
	defer b.mu.Unlock()
	now, u := time.Now(), b.usage.last
	until := now
	if b.state.final() {
		until = b.endedAt
	}
	m := api.Metrics{
		SandboxID: b.id, State: string(b.state), UptimeSeconds: max(until.Sub(b.created).Seconds(), 0),
		CPUSeconds: u.CPU.Seconds(), MemoryPeak: b.usage.memory, RunningExecs: b.execs,
	}
	if !b.state.final() {
		m.MemoryBytes, m.HostTasks, m.DiskBytes, m.HostRSSBytes = u.MemoryBytes, u.Tasks, u.DiskBytes, u.MemoryBytes
		since := b.looked.at
		if since.IsZero() {
			since = b.began
		}
		if d := now.Sub(since); d > 0 {
			m.HostCPUPercent = max(float64(u.CPU-b.looked.cpu)/float64(d)*100, 0)
		}
		b.looked = look{now, u.CPU}
	}
	return m, nil
}
