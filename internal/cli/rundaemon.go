package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// open opens the session of a run: a daemon's, if one is running that can do
// what is asked for, else one of its own.
func (r *runner) open(ctx context.Context) (err error) {
	if r.session, err = r.openDaemon(ctx); r.session != nil || err != nil {
		r.daemon = true
		if err == nil {
			err = r.fetch(ctx)
		}
		return err
	}
	if r.env.Open == nil {
		return &fault{"run", "this build cannot start sandboxes", "berm version"}
	}
	r.session, err = r.openOwn(ctx)
	if isNotKept(err) && looksPulled(r.opt.template) {
		if err = r.pullOwn(ctx); err == nil {
			r.session, err = r.openOwn(ctx)
		}
	}
	return notKept(r.opt.template, err)
}

// openOwn starts what this run needs.
func (r *runner) openOwn(ctx context.Context) (*Session, error) {
	egress, err := r.opt.wire.egress()
	if err != nil {
		return nil, err
	}
	return r.env.Open(ctx, OpenOptions{
		StateDir: r.env.StateDir, Template: r.opt.template, Isolation: r.opt.isolation, Progress: r.progress.update,
		Include: r.opt.include, Exclude: r.opt.exclude, MaxBytes: r.opt.templateMax,
		Only: &r.opt.limits, Link: egress != nil, Presets: presets(egress), PresetsFile: r.opt.presets,
	})
}

// openDaemon is nil if no daemon is to be used. One that was named must be; one
// that is running and is passed by is told of: whoever reads its log will look
// for this run there.
func (r *runner) openDaemon(ctx context.Context) (*Session, error) {
	named := r.env.URL != "" || os.Getenv("BERM_URL") != ""
	if r.opt.noDaemon || r.env.Connect == nil {
		return nil, nil
	}
	what := r.ownOnly()
	const why = "is of this host, and a daemon does not look at it"
	if what != "" && named {
		return nil, &fault{what, why, "berm run --no-daemon"}
	}
	s, err := r.env.connect(ctx)
	var none *client.NoDaemon
	if errors.As(err, &none) {
		return nil, nil
	}
	if err == nil {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = s.Client.Healthy(short)
		cancel()
		if err == nil && what == "" {
			s.Template = r.opt.template
			return s, nil
		}
		s.Close()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !named {
		if err == nil {
			err = &fault{what, why, ""}
		}
		r.progress.phase("")
		r.env.note("the daemon that is running is not used, and its log will not have this run: %v", err)
		return nil, nil
	}
	var f *fault
	var ae *api.Error
	if errors.As(err, &f) || errors.As(err, &ae) {
		return nil, err
	}
	return nil, &fault{"daemon", err.Error(), "berm run --no-daemon"}
}

// ownOnly is the flag that only a run with processes of its own can follow, or "".
func (r *runner) ownOnly() string {
	o := &r.opt
	switch {
	case isPath(o.template), o.template != "" && o.template != "host" && exists(o.template):
		return "--template " + shellLine([]string{o.template})
	case len(o.include) > 0:
		return "--template-include"
	case len(o.exclude) > 0:
		return "--template-exclude"
	case o.templateMax > 0:
		return "--template-max"
	case o.presets != "":
		return "--presets"
	}
	return ""
}

// slack is what a run may take beside its program: files in and out.
const slack = 10 * time.Minute

// ttl bounds the life of a daemon's sandbox where nobody is left to end it. 0 is
// the daemon's default.
func (r *runner) ttl() float64 {
	limit := r.opt.limits.WithDefaults().TimeoutSeconds
	switch ttl := limit + slack.Seconds(); {
	case limit == api.Unlimited:
		return api.MaxTTLSeconds
	case ttl > api.DefaultTTLSeconds:
		return min(ttl, api.MaxTTLSeconds)
	default:
		return ttl
	}
}
