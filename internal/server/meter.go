package server

import (
	"fmt"
	"net/http"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// A Meter counts what happens, for GET /metrics. Its zero value is not usable;
// see NewMeter.
type Meter struct {
	set *metrics.Set
}

// NewMeter returns a Meter that has counted nothing.
func NewMeter() *Meter { return &Meter{set: metrics.NewSet()} }

// Append counts one append to the audit log and how long it took.
func (m *Meter) Append(took time.Duration, err error) {
	m.set.GetOrCreateHistogram("berm_audit_append_seconds").Update(took.Seconds())
	if err != nil {
		m.set.GetOrCreateCounter("berm_audit_append_failures_total").Inc()
	}
}

// Gauge adds a figure that is asked for with each look; name may have labels.
func (m *Meter) Gauge(name string, f func() float64) { m.set.NewGauge(name, f) }

// request counts one request. Its labels are of our own tables, never of the
// client.
func (m *Meter) request(route string, status int, took time.Duration, bytes int64) {
	m.set.GetOrCreateCounter(fmt.Sprintf("berm_http_requests_total{route=%q,status=\"%d\"}", route, status)).Inc()
	m.set.GetOrCreateHistogram(fmt.Sprintf("berm_http_request_seconds{route=%q}", route)).Update(took.Seconds())
	m.set.GetOrCreateCounter(fmt.Sprintf("berm_http_sent_bytes_total{route=%q}", route)).AddInt64(bytes)
}

// metrics is the text that Prometheus reads.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) error {
	if err := s.node(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	t := s.e.Totals()
	for state, n := range t.States {
		metrics.WriteGaugeUint64(w, fmt.Sprintf("berm_sandboxes{state=%q}", state), uint64(n))
	}
	for ending, n := range t.Endings {
		metrics.WriteCounterUint64(w, fmt.Sprintf("berm_sandbox_endings_total{ending=%q}", ending), n)
	}
	metrics.WriteCounterUint64(w, "berm_sandbox_creates_total", t.Creates)
	metrics.WriteCounterUint64(w, "berm_execs_total", t.Execs)
	metrics.WriteGaugeUint64(w, "berm_promised_memory_bytes", uint64(t.MemoryBytes))
	metrics.WriteGaugeUint64(w, "berm_memory_budget_bytes", uint64(t.Budget))
	metrics.WriteGaugeUint64(w, "berm_http_requests_open", uint64(s.opened()))
	if s.opt.Store != nil {
		degraded := uint64(0)
		if s.opt.Store.Degraded() != "" {
			degraded = 1
		}
		metrics.WriteGaugeUint64(w, "berm_audit_degraded", degraded)
		metrics.WriteGaugeUint64(w, "berm_audit_head_seq", s.opt.Store.Head().Seq)
	}
	s.meter.set.WritePrometheus(w)
	metrics.WriteGoMetrics(w)
	metrics.WriteProcessMetrics(w)
	return nil
}
