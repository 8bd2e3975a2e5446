package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build/dockerfile"
	"github.com/bermhq/berm/internal/image"
)

// A stage is a root on its way: its layers, and what is said of the processes
// that will run on it.
type stage struct {
	root    image.Root
	env     []string // NAME=value, each name once
	args    map[string]string
	user    string // "" is root while it is built, and the agent after
	workdir string
	shell   []string
	entry   []string
	cmd     []string
	cmdSet  bool // CMD was said here
	pending []action
}

// An action changes the root without running anything of it. Those that follow
// one another become one layer, or go into the sandbox of what runs next.
type action struct {
	label string
	key   any
	mkdir bool // it only makes a directory
	do    func(ctx context.Context, s *step) error
}

// begin is a stage on a root. That an image calls its user root grants nothing:
// only a template that was made so does, and what the Dockerfile itself says.
func begin(root image.Root) *stage {
	c := root.Defaults.TemplateConfig
	if name, _, _ := strings.Cut(c.User, ":"); (name == "root" || name == "0") && !root.Defaults.Root {
		c.User = ""
	}
	return &stage{root: root, env: slices.Clone(c.Env), args: map[string]string{}, user: c.User, workdir: cmp.Or(c.Workdir, "/"),
		shell: []string{"/bin/sh", "-c"}, entry: c.Entrypoint, cmd: c.Cmd}
}

// config is what sandboxes on it get.
func (s *stage) config() api.TemplateConfig {
	c := api.TemplateConfig{Env: s.env, User: s.user, Entrypoint: s.entry, Cmd: s.cmd}
	if s.workdir != "/" {
		c.Workdir = s.workdir
	}
	return c
}

// overlay lays over what a request says.
func (s *stage) overlay(c api.TemplateConfig) {
	for _, kv := range c.Env {
		k, v, _ := strings.Cut(kv, "=")
		s.setenv(k, v)
	}
	s.user, s.workdir = cmp.Or(c.User, s.user), cmp.Or(c.Workdir, s.workdir)
	if c.Entrypoint != nil {
		s.entry = c.Entrypoint
	}
	if c.Cmd != nil {
		s.cmd = c.Cmd
	}
}

func (s *stage) setenv(k, v string) {
	for i, kv := range s.env {
		if strings.HasPrefix(kv, k+"=") {
			s.env[i] = k + "=" + v
			return
		}
	}
	s.env = append(s.env, k+"="+v)
}

// get is a variable as words of the file see it: ENV before ARG.
func (s *stage) get(name string) (string, bool) {
	for _, kv := range s.env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v, true
		}
	}
	v, ok := s.args[name]
	return v, ok
}

// abs is a path below the working directory.
func (s *stage) abs(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(s.workdir, p)
	}
	return path.Clean(p)
}

// at says where an error is: the line of the Dockerfile, and the instruction.
func at(ins dockerfile.Instruction, err error) error {
	if err == nil {
		return nil
	}
	where := fmt.Sprintf("Dockerfile:%d: %s: ", ins.Line, ins.Name)
	var ae *api.Error
	if errors.As(err, &ae) {
		if strings.HasPrefix(ae.Message, "Dockerfile:") {
			return err
		}
		e := *ae
		e.Message = where + ae.Message
		return &e
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &api.Error{Code: api.CodeTemplateInvalid, Message: where + err.Error(), Hint: "mend that line"}
}

func refuse(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Build arguments that Docker knows without ARG. They are about the builder's
// own network, and no step gets them.
var proxies = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"}

// automatic are the arguments that have a value wherever they are declared.
var automatic = map[string]string{
	"TARGETPLATFORM": "linux/amd64", "TARGETOS": "linux", "TARGETARCH": "amd64", "TARGETVARIANT": "",
	"BUILDPLATFORM": "linux/amd64", "BUILDOS": "linux", "BUILDARCH": "amd64", "BUILDVARIANT": "",
}

// dockerfile makes the last stage of a file, and those that it needs.
func (w *work) dockerfile(ctx context.Context, f *dockerfile.File) (*stage, error) {
	last := len(f.Stages) - 1
	global := map[string]string{}
	declared := map[string]bool{}
	get := func(name string) (string, bool) {
		if v, ok := global[name]; ok {
			return v, true
		}
		v, ok := automatic[name]
		return v, ok
	}
	for _, ins := range f.Args {
		if err := w.arg(f, ins, get, global, nil, declared); err != nil {
			return nil, at(ins, err)
		}
	}
	w.stages = make([]*stage, len(f.Stages))
	need := f.Needs(last)
	for _, n := range need {
		w.steps += 1 + len(f.Stages[n].Steps)
	}
	for _, n := range need {
		st, err := w.from(ctx, f, n, get)
		if err != nil {
			return nil, at(f.Stages[n].From, err)
		}
		for _, ins := range f.Stages[n].Steps {
			w.say(ins)
			if err := w.instruction(ctx, f, n, st, ins, global, declared); err != nil {
				return nil, at(ins, err)
			}
		}
		if err := w.flush(ctx, st); err != nil {
			return nil, err
		}
		w.stages[n] = st
	}
	for name := range w.j.req.BuildArgs {
		switch {
		case slices.Contains(proxies, name):
			w.note("the build argument %s is not passed: the network of steps is what --allow says", name)
		case !declared[name]:
			w.note("no ARG takes the build argument %s", name)
		}
	}
	return w.stages[last], nil
}

// say is the heading of a step.
func (w *work) say(ins dockerfile.Instruction) {
	w.step++
	text := ins.String()
	w.j.log.add(fmt.Sprintf("Step %d/%d (line %d): %s", w.step, w.steps, ins.Line, clip(text, 300)))
	w.j.progress(api.TemplateProgress{Phase: "step", Item: harmless(clip(text, 100)), Done: int64(w.step), Total: int64(w.steps)})
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

func (w *work) from(ctx context.Context, f *dockerfile.File, n int, get func(string) (string, bool)) (*stage, error) {
	s := f.Stages[n]
	w.say(s.From)
	name, err := dockerfile.Expand(s.Image, f.Escape, get)
	if err != nil {
		return nil, err
	}
	platform, err := dockerfile.Expand(s.Platform, f.Escape, get)
	if err != nil {
		return nil, err
	}
	for _, fl := range s.From.Flags {
		if fl.Name != "platform" {
			return nil, refuse("--%s is not known", fl.Name)
		}
	}
	if name == "" {
		return nil, refuse("the name of the image is empty: no ARG before the first FROM sets it")
	}
	if m, ok := f.Stage(name, n); ok {
		if w.stages[m] == nil {
			return nil, refuse("stage %q is named by a variable, which is not supported: write its name", name)
		}
		old := *w.stages[m]
		old.env, old.args, old.cmdSet = slices.Clone(old.env), map[string]string{}, false
		return &old, nil
	}
	if strings.EqualFold(name, "scratch") {
		root, err := w.empty(ctx)
		return begin(root), err
	}
	root, err := w.base(ctx, name, cmp.Or(platform, w.j.req.Platform))
	if err != nil {
		return nil, err
	}
	return begin(root), nil
}

// arg declares variables. into gets the values; st is nil before the first FROM.
func (w *work) arg(f *dockerfile.File, ins dockerfile.Instruction, get func(string) (string, bool), into, global map[string]string, declared map[string]bool) error {
	for _, p := range ins.Pairs {
		declared[p.Name] = true
		if v, ok := w.j.req.BuildArgs[p.Name]; ok && !slices.Contains(proxies, p.Name) {
			into[p.Name] = v
			continue
		}
		if p.Set {
			v, err := dockerfile.Expand(p.Value, f.Escape, get)
			if err != nil {
				return err
			}
			into[p.Name] = v
			continue
		}
		if v, ok := global[p.Name]; ok {
			into[p.Name] = v
		} else if v, ok := automatic[p.Name]; ok {
			into[p.Name] = v
		}
	}
	return nil
}

// meaningless are instructions that say nothing to a sandbox.
var meaningless = map[string]string{
	"EXPOSE":      "any port that something listens on can be reached with berm port",
	"VOLUME":      "it is a directory like any other, and what is written there goes with the sandbox",
	"STOPSIGNAL":  "a sandbox is ended as a whole",
	"HEALTHCHECK": "nobody asks for it",
	"LABEL":       "a template has none",
	"MAINTAINER":  "a template has none",
}

// instruction takes one into account, and makes what it asks for.
func (w *work) instruction(ctx context.Context, f *dockerfile.File, n int, st *stage, ins dockerfile.Instruction, global map[string]string, declared map[string]bool) error {
	if ins.Name != "RUN" && ins.Name != "COPY" && ins.Name != "ADD" && ins.Name != "HEALTHCHECK" && len(ins.Flags) > 0 {
		return refuse("it takes no flags")
	}
	if why, is := meaningless[ins.Name]; is {
		w.note("%s means nothing here: %s", ins.Name, why)
		return nil
	}
	one := func() (string, error) {
		v, err := dockerfile.Expand(ins.Rest, f.Escape, st.get)
		if err == nil && (v == "" || strings.ContainsAny(v, "\x00\n")) {
			err = refuse("%.60q: nothing is left of it", ins.Rest)
		}
		return v, err
	}
	switch ins.Name {
	case "ENV":
		values := make([]string, len(ins.Pairs))
		for i, p := range ins.Pairs { // all see what was before
			v, err := dockerfile.Expand(p.Value, f.Escape, st.get)
			if err != nil {
				return err
			}
			values[i] = v
		}
		for i, p := range ins.Pairs {
			name, err := dockerfile.Expand(p.Name, f.Escape, st.get)
			if err != nil {
				return err
			}
			if name == "" {
				return refuse("a variable without a name")
			}
			st.setenv(name, values[i])
		}
		if len(strings.Join(st.env, "\n")) > 100<<10 {
			return refuse("all variables together are longer than %d bytes", 100<<10)
		}
	case "ARG":
		return w.arg(f, ins, st.get, st.args, global, declared)
	case "WORKDIR":
		dir, err := one()
		if err != nil {
			return err
		}
		st.workdir = st.abs(dir)
		w.mkdir(st, ins)
	case "USER":
		user, err := one()
		if err != nil {
			return err
		}
		st.user = strings.TrimSpace(user)
	case "SHELL":
		if len(ins.Words) == 0 {
			return refuse("the array is empty")
		}
		st.shell = ins.Words
	case "CMD":
		st.cmd, st.cmdSet = st.command(ins), true
	case "ENTRYPOINT":
		st.entry = st.command(ins)
		if !st.cmdSet {
			st.cmd = nil
		}
	case "RUN":
		return w.run(ctx, f, n, st, ins)
	case "COPY", "ADD":
		return w.copy(ctx, f, n, st, ins)
	case "ONBUILD":
		return refuse("it is for builds that use this template, and a template holds no instructions: write %s where it is used", clip(ins.Inner, 60))
	default:
		return refuse("is not supported")
	}
	return nil
}

// command is what CMD and ENTRYPOINT say.
func (s *stage) command(ins dockerfile.Instruction) []string {
	switch {
	case ins.JSON:
		return ins.Words
	case ins.Rest == "":
		return nil
	}
	return append(slices.Clone(s.shell), ins.Rest)
}

// mkdir makes the working directory, which belongs to whoever works there.
func (w *work) mkdir(st *stage, ins dockerfile.Instruction) {
	dir, user := st.workdir, st.user
	if dir == "/" {
		return
	}
	st.pending = append(st.pending, action{label: ins.String(), key: []any{"mkdir", dir, user}, mkdir: true, do: func(ctx context.Context, s *step) error {
		who, err := s.look(ctx, user)
		if err != nil {
			return at(ins, err)
		}
		return at(ins, s.w.b.opt.Engine.Unpack(ctx, s.id, dir, &[2]uint32{who.uid, who.gid}, strings.NewReader(string(make([]byte, 1024)))))
	}})
}
