package server

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/bermhq/berm/api"
)

// A Meter counts what happens, for GET /metrics. Its zero value is not usable;
// see NewMeter.
type Meter struct {
	set     *metrics.Set
	creates atomic.Int64
}

// NewMeter returns a Meter that has counted nothing.
func NewMeter() *Meter { return &Meter{set: metrics.NewSet()} }

// Event counts an event of the log. The engine's journal calls it for each
// event that is on disk.
func (m *Meter) Event(e api.Event) {
	m.set.GetOrCreateCounter(fmt.Sprintf("berm_events_total{type=%q}", e.Type)).Inc()
}

// Ended counts the end of a sandbox, and why.
func (m *Meter) Ended(ending string) {
	m.set.GetOrCreateCounter(fmt.Sprintf("berm_sandbox_endings_total{ending=%q}", ending)).Inc()
}

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
	if route == "sandbox.create" && (status == http.StatusCreated || status == http.StatusSwitchingProtocols) {
		m.creates.Add(1)
	}
}

// metrics is the text that Prometheus reads.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) error {
	if err := s.node(r); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.meter.set.WritePrometheus(w)
	metrics.WriteGoMetrics(w)
	metrics.WriteProcessMetrics(w)
	return nil
}
