// Package bench measures what the specification promises. It knows Berm from
// outside only: the public client, the binary, and gVisor's own runsc beside
// them. Contestants take turns within each round and ratios are taken per
// round, so that a machine that slows down slows all of them down.
package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/bermhq/berm/client"
)

// Options of a benchmark.
type Options struct {
	Client   *client.Client
	Template string
	RunID    string // of what is created, where that is one run; "" for none
	Berm     string // the binary under test
	Runsc    string // a program that is runsc when called by that name
	StateDir string // "" for the default
	Rounds   int
	Note     func(string) // told what is being done; nil: nobody listens
}

// Report is what a benchmark prints with --json.
type Report struct {
	Host map[string]any `json:"host"`
	Rows []Row          `json:"rows"`
}

// Row is one figure: medians and the like over N samples.
type Row struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	N        int     `json:"n"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Baseline string  `json:"baseline,omitempty"`  // name of the row it is compared with
	RatioP50 float64 `json:"ratio_p50,omitempty"` // median of the per-round ratios
}

// A contestant is one command that is run once per round.
type contestant struct {
	name    string
	against []string // rows that it is compared with
	argv    []string
	path    string // program, where argv[0] is another name
	env     []string
	times   []float64
}

func (c *contestant) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, c.argv[1:]...)
	cmd.Args[0] = c.argv[0]
	if c.env != nil {
		cmd.Env = c.env
	}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return fmt.Errorf("%s: %w: %.300s", c.name, err, out)
	}
	c.times = append(c.times, float64(took.Microseconds())/1000)
	return nil
}

// race runs the contestants in turn, each round, after one round that does not
// count.
func race(ctx context.Context, rounds int, cs []*contestant) error {
	for i := range rounds + 1 {
		for _, c := range cs {
			if err := c.once(ctx); err != nil {
				return err
			}
			if i == 0 {
				c.times = nil
			}
		}
	}
	return nil
}

func rows(cs []*contestant) []Row {
	var out []Row
	for _, c := range cs {
		base := row(c.name, "ms", c.times)
		if len(c.against) == 0 {
			out = append(out, base)
		}
		for _, a := range c.against {
			i := slices.IndexFunc(cs, func(o *contestant) bool { return o.name == a })
			r := base
			r.Baseline, r.RatioP50 = a, ratio(c.times, cs[i].times)
			out = append(out, r)
		}
	}
	return out
}

func row(name, unit string, v []float64) Row {
	s := slices.Sorted(slices.Values(v))
	return Row{Name: name, Unit: unit, N: len(s), P50: quantile(s, 0.5), P99: quantile(s, 0.99), Min: quantile(s, 0), Max: quantile(s, 1)}
}

// quantile of sorted values; 0 of none.
func quantile(s []float64, q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (s[i+1]-s[i])*(at-float64(i))
}

// ratio is the median of a[i]/b[i].
func ratio(a, b []float64) float64 {
	var r []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			r = append(r, a[i]/b[i])
		}
	}
	slices.Sort(r)
	return quantile(r, 0.5)
}
