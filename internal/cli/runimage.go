package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// imaged says that a template was named that may have an entrypoint.
func (o *runOptions) imaged() bool {
	return o.hasEntrypoint || o.template != "" && o.template != "host"
}

// own says that nothing is named to run but what the template runs by itself.
func (o *runOptions) own(rest []string, dashes bool) bool {
	return o.template != "" && o.template != "host" && len(rest) == 0 && !dashes && !o.hasCode
}

// isPath says whether a template is written as a place of this host.
func isPath(name string) bool {
	for _, start := range []string{"/", "./", "../"} {
		if strings.HasPrefix(name, start) {
			return true
		}
	}
	return name == "." || name == ".."
}

// looksPulled says whether a template is written as an image that can be meant
// by nothing else. A plain word could be anything, and is never pulled unasked.
func looksPulled(name string) bool {
	return !isPath(name) && api.ValidTemplate(name) && strings.ContainsAny(name, ":/@")
}

func isNotKept(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeTemplateNotFound
}

// notKept says of a template that is not there what can be done about it.
func notKept(name string, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Code != api.CodeTemplateNotFound || isPath(name) || looksPulled(name) || !api.ValidTemplate(name) {
		return err
	}
	e := *ae
	e.Hint = "berm template ls; berm template pull " + name + ", if an image is meant"
	return &e
}

// fetch has the daemon pull an image that it does not keep.
func (r *runner) fetch(ctx context.Context) error {
	if !looksPulled(r.opt.template) {
		return nil
	}
	_, err := r.session.Client.Template(ctx, r.opt.template)
	if !isNotKept(err) {
		return err
	}
	err = r.pull(ctx, &asker{r.env, r.session.Client})
	var ae *api.Error
	switch {
	case errors.As(err, &ae) && ae.Code == api.CodeTokenForbidden:
		return &fault{"--template " + shellLine([]string{r.opt.template}), "the daemon does not keep it, and only an operator may have it pulled: " + ae.Message,
			"berm template pull " + shellLine([]string{r.opt.template}) + ", with such a token; or berm run --no-daemon"}
	case errors.As(err, &ae) && ae.Code == api.CodeUnavailable:
		return &fault{"--template " + shellLine([]string{r.opt.template}), "the daemon does not keep it, and cannot pull it", "berm run --no-daemon"}
	}
	return err
}

// pullOwn pulls an image where no daemon is asked.
func (r *runner) pullOwn(ctx context.Context) error {
	s, err := r.env.Open(ctx, OpenOptions{StateDir: r.env.StateDir, NoTemplate: true, Templates: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return r.pull(ctx, &asker{r.env, s.Client})
}

// pull pulls the image that is this run's template.
func (r *runner) pull(ctx context.Context, a *asker) error {
	r.progress.phase("")
	name := r.opt.template
	r.env.note("the template %s is not kept: it is pulled, once", name)
	_, err := a.pulled(ctx, api.BuildRequest{Name: name, ImageRef: name})
	var ae *api.Error
	if errors.As(err, &ae) && ae.Code == api.CodeTemplateExists {
		return nil // somebody else was faster
	}
	r.progress.phase("preparing")
	return err
}

// entry puts the template's entrypoint before the command, or is its command
// where none was named.
func (r *runner) entry(ctx context.Context) error {
	if !r.asImage {
		return nil
	}
	var c api.TemplateConfig
	t, err := r.session.Client.Template(ctx, r.session.Template)
	var ae *api.Error
	switch {
	case err == nil:
		c = t.Config
	case errors.As(err, &ae) && slices.Contains([]string{api.CodeTemplateNotFound, api.CodeUnavailable, api.CodeNoRoute}, ae.Code): // a folder of this host
	default:
		return err
	}
	before, command := c.Entrypoint, c.Cmd
	if r.opt.hasEntrypoint {
		before, command = nil, nil
		if r.opt.entrypoint != "" {
			before = []string{r.opt.entrypoint}
		}
	}
	if len(r.steps) > 0 {
		r.steps[0].args = slices.Concat(before, r.steps[0].args)
		return nil
	}
	args := slices.Concat(before, command)
	if len(args) == 0 {
		return &fault{"run", "the template " + r.opt.template + " has no command of its own, and none was given", "berm run --template " + shellLine([]string{r.opt.template}) + " -- sh -c 'echo hello'"}
	}
	r.steps = []step{{args: args}}
	return nil
}
