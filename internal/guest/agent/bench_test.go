package agent_test

import (
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// BenchmarkTrue is the price of the smallest exec. With BERM_TEST_AGENT_BASE,
// the path of an older agent, the two take turns, so that whatever else this
// machine does hits both.
func BenchmarkTrue(b *testing.B) {
	agents := map[string]*guest.Client{"new": real(b)}
	names := []string{"new"}
	if base := os.Getenv("BERM_TEST_AGENT_BASE"); base != "" {
		agents["base"] = runs(b, base)
		names = append(names, "base")
	}
	took := map[string][]time.Duration{}
	for i := 0; b.Loop(); i++ {
		for _, keep := range []int64{0, 1 << 20} {
			for _, n := range names {
				s := user("t"+strconv.Itoa(i)+"-"+strconv.FormatInt(keep, 10), "/bin/true")
				if s.Keep = keep; keep > 0 {
					if n == "base" {
						continue
					}
				}
				began := time.Now()
				p, err := agents[n].Start(context.Background(), s)
				for err == nil {
					_, _, err = p.Read(context.Background())
				}
				if err != io.EOF {
					b.Fatal(err)
				}
				if keep > 0 {
					n += "-kept"
				}
				took[n] = append(took[n], time.Since(began))
			}
		}
	}
	for n, d := range took {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds()), n+"-p50-us")
		b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), n+"-p99-us")
	}
}
