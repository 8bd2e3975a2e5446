package build

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/deb"
	"github.com/bermhq/berm/internal/template"
)

// packages makes a root of a distribution's packages, or takes one that is
// there, and installs Python's and Node's on top.
func (w *work) packages(ctx context.Context) (*stage, error) {
	req := w.j.req
	if len(req.Debs)+len(req.Pips)+len(req.Npms)+len(w.j.plan.run) > 0 {
		if err := w.bearable(ctx); err != nil {
			return nil, err
		}
	}
	st, err := w.bottom(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range []struct {
		title string
		what  []string
		lines []string
	}{
		// The root is the template's own: there is no distribution to protect
		// from pip, and a venv would hide what debs brought. Hence pip is told
		// that it may. A root without pip says so by itself.
		{"pip install", req.Pips, []string{`export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off`,
			`pip=pip; command -v pip >/dev/null || pip="python3 -m pip"`, `exec $pip install --no-cache-dir -- "$@"`}},
		{"npm install -g", req.Npms, []string{`export npm_config_cache=/tmp/.npm npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false npm_config_progress=false`,
			`npm install -g -- "$@" || exit`, `rm -rf /tmp/.npm`}},
		{"run", w.j.plan.run, []string{`for line; do echo "+ $line"; sh -ec "$line" || exit; done`}},
	} {
		if len(k.what) == 0 {
			continue
		}
		args := append([]string{"/bin/sh", "-c", strings.Join(k.lines, "\n"), k.title}, k.what...)
		if err := w.command(ctx, st, k.title, args, nil, k.title != "run"); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// bottom is what the rest goes on top of.
func (w *work) bottom(ctx context.Context) (*stage, error) {
	req := w.j.req
	switch {
	case req.From != "" || req.ImageRef != "":
		name := req.From + req.ImageRef
		w.j.log.add("From " + name)
		root, err := w.base(ctx, name, req.Platform)
		return begin(root), err
	}
	w.j.log.add("Packages: " + strings.Join(req.Debs, " "))
	debs := slices.Sorted(slices.Values(req.Debs))
	job := template.Job{Kind: template.JobDebs, Debs: debs, Suite: req.Suite, Mirror: req.Mirror, Keyring: req.Keyring,
		Key: w.key("debs", debs, req.Suite, req.Mirror, req.Keyring)}
	made, err := w.b.opt.Templates.Do(ctx, job, nil, w.j.progress)
	if err != nil {
		return nil, err
	}
	st := begin(made.Root)
	st.user = ""
	return st, w.command(ctx, st, "configure the packages", []string{"/bin/sh", "-c", deb.Finish}, deb.FinishEnv, false)
}

// command is a step that no Dockerfile has.
func (w *work) command(ctx context.Context, st *stage, title string, args, more []string, link bool) error {
	w.j.log.add("Step: " + title)
	w.j.progress(api.TemplateProgress{Phase: "step", Item: title})
	env := map[string]string{}
	for _, kv := range slices.Concat(st.env, more) {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	key := w.key("command", st.root.Layers, args, env, w.policyKey())
	return w.layer(ctx, st, key, link, rootAccount, nil, func(ctx context.Context, s *step) error {
		return s.exec(ctx, command{label: fmt.Sprintf("%s: ", title), args: args, dir: "/", env: env, as: rootAccount})
	})
}
