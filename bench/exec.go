package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/bermhq/berm/api"
)

// Exec measures one command in a sandbox that is up: the whole way over HTTP, on
// a connection that is open, against what the guest's agent says that the same
// command took it, from the request to the end.
func Exec(ctx context.Context, o Options) (Report, error) {
	doc, err := o.Client.Doctor(ctx)
	if err != nil {
		return Report{}, err
	}
	o.note("creating a sandbox")
	sb, err := o.Client.Create(ctx, api.CreateRequest{Template: o.Template, TTLSeconds: 600})
	if err != nil {
		return Report{}, err
	}
	defer o.Client.Delete(context.WithoutCancel(ctx), sb.SandboxID)
	var rows []Row
	for _, c := range []struct {
		name string
		args []string
	}{
		{"/bin/true", []string{"/bin/true"}},
		{"sh -c :", []string{"/bin/sh", "-c", ":"}},
		{"python3 -c pass", []string{"python3", "-c", "pass"}},
	} {
		o.note(fmt.Sprintf("%s, %d times", c.name, 10*o.Rounds+5))
		var whole, host, guest []float64
		for i := range 10*o.Rounds + 5 {
			began := time.Now()
			a, err := o.Client.ExecPlain(ctx, sb.SandboxID, api.ExecRequest{Args: c.args})
			took := time.Since(began)
			if err != nil {
				return Report{}, err
			}
			if a.NotStarted != "" {
				o.note("skipped " + c.name + ": " + a.NotStarted)
				break
			}
			if a.ExitCode != 0 || a.TimingsMS["guest"] <= 0 {
				return Report{}, fmt.Errorf("%s: exit code %d, timings %v", c.name, a.ExitCode, a.TimingsMS)
			}
			if i < 5 { // the first ones warm caches up
				continue
			}
			whole = append(whole, float64(took.Microseconds())/1000)
			host = append(host, a.TimingsMS["exec"])
			guest = append(guest, a.TimingsMS["guest"])
		}
		if len(whole) == 0 {
			continue
		}
		base := row("guest agent "+c.name, "ms", guest)
		for _, r := range []struct {
			name  string
			times []float64
		}{{"http exec " + c.name, whole}, {"engine " + c.name, host}} {
			w := row(r.name, "ms", r.times)
			w.Baseline, w.RatioP50 = base.Name, ratio(r.times, guest)
			rows = append(rows, w)
		}
		rows = append(rows, base)
	}
	return Report{Host: doc.Host, Rows: rows}, nil
}

func (o Options) note(line string) {
	if o.Note != nil {
		o.Note(line)
	}
}
