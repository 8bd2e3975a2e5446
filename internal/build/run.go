package build

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build/dockerfile"
	"github.com/bermhq/berm/internal/sandbox"
)

// A command is what a step runs.
type command struct {
	label string // for errors: the line and the instruction, or what it does
	args  []string
	dir   string
	env   map[string]string // beside what the root says
	as    account
}

// script is the command of a RUN: the array, or the shell with its text.
func (s *stage) script(ins dockerfile.Instruction) ([]string, error) {
	if ins.JSON {
		if len(ins.Words) == 0 || ins.Words[0] == "" {
			return nil, refuse("the array is empty")
		}
		return ins.Words, nil
	}
	text := ins.Rest
	if len(ins.Docs) == 1 && strings.Trim(text, "<-'\"") == ins.Docs[0].Name { // it is the whole command
		if text = ins.Docs[0].Text; strings.HasPrefix(text, "#!") {
			return nil, refuse("a here-document that names its own interpreter is not supported: write RUN python3 <<%s, and leave the line with #! out", ins.Docs[0].Name)
		}
	} else {
		for _, d := range ins.Docs {
			text += "\n" + d.Text + d.Name
		}
	}
	return append(slices.Clone(s.shell), text), nil
}

// A mount is one --mount of a RUN.
type mount struct {
	target string
	fill   func(ctx context.Context, s *step) error // nil: it begins empty
}

// mounts reads the flags of a RUN. Nothing is mounted: a place is filled, and
// what was changed there is left out of the layer.
func (w *work) mounts(ctx context.Context, f *dockerfile.File, n int, st *stage, ins dockerfile.Instruction) (out []mount, key []any, err error) {
	for _, fl := range ins.Flags {
		switch fl.Name {
		case "mount":
		case "network":
			if fl.Value == "default" || fl.Value == "none" && w.j.req.NoNetwork {
				continue
			}
			return nil, nil, refuse("--network=%s is not supported: what steps may reach is said for the whole build, with --allow or --no-network", fl.Value)
		case "security":
			return nil, nil, refuse("--security is not supported: every step runs in a sandbox, and none has more rights than another")
		default:
			return nil, nil, refuse("--%s is not known", fl.Name)
		}
		m := map[string]string{"type": "bind"}
		for _, kv := range strings.Split(fl.Value, ",") {
			k, v, _ := strings.Cut(kv, "=")
			if v, err = dockerfile.Expand(v, f.Escape, st.get); err != nil {
				return nil, nil, err
			}
			switch k {
			case "dst", "destination":
				k = "target"
			case "src":
				k = "source"
			case "ro", "readonly", "rw", "readwrite", "id", "sharing", "size", "mode", "uid", "gid", "required":
				continue // nobody else sees the place
			case "type", "target", "source", "from":
			default:
				return nil, nil, refuse("--mount: %.40q is not known", k)
			}
			m[k] = v
		}
		if m["target"] == "" {
			return nil, nil, refuse("--mount: a target is missing")
		}
		target := st.abs(m["target"])
		if target == "/" {
			return nil, nil, refuse("--mount: the target cannot be /")
		}
		one := mount{target: target}
		switch m["type"] {
		case "cache":
			w.note("--mount=type=cache begins empty in each build: what a step keeps there is gone after it")
		case "tmpfs":
		case "bind":
			src := m["source"]
			if src == "" {
				src = "."
			}
			a, err := w.copying(ctx, f, n, st, ins, m["from"], []string{strings.TrimSuffix(src, "/")}, target+"/", copyFlags{mount: true})
			if err != nil {
				return nil, nil, err
			}
			one.fill = a.do
			key = append(key, a.key)
		default:
			return nil, nil, refuse("--mount=type=%s is not supported: credentials do not go into a build; cache, tmpfs and bind are", m["type"])
		}
		key = append(key, m["type"], target)
		out = append(out, one)
	}
	return out, key, nil
}

// run is a RUN.
func (w *work) run(ctx context.Context, f *dockerfile.File, n int, st *stage, ins dockerfile.Instruction) error {
	args, err := st.script(ins)
	if err != nil {
		return err
	}
	mounts, mountKey, err := w.mounts(ctx, f, n, st, ins)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(st.pending, func(a action) bool { return !a.mkdir }) {
		if err := w.flush(ctx, st); err != nil {
			return err
		}
	}
	before := st.pending
	st.pending = nil
	var drop []string
	for _, m := range mounts {
		drop = append(drop, m.target)
	}
	env := maps.Clone(st.args)
	for _, kv := range st.env { // said once more, above what an argument says
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	key := w.key("run", st.root.Layers, keys(before), args, st.workdir, st.user, env, w.policyKey(), mountKey)
	as, err := w.account(ctx, st, key)
	if err != nil {
		return err
	}
	return w.layer(ctx, st, key, true, as, drop, func(ctx context.Context, s *step) error {
		for _, a := range before {
			if err := a.do(ctx, s); err != nil {
				return err
			}
		}
		for _, m := range mounts {
			if m.fill != nil {
				if err := m.fill(ctx, s); err != nil {
					return err
				}
			} else if err := w.b.opt.Engine.Unpack(ctx, s.id, m.target, &[2]uint32{as.uid, as.gid}, strings.NewReader(string(make([]byte, 1024)))); err != nil {
				return err
			}
		}
		return s.exec(ctx, command{label: fmt.Sprintf("Dockerfile:%d: RUN: ", ins.Line), args: args, dir: st.workdir, env: env, as: as})
	})
}

// account is whom the stage's commands run as. A name is looked up in the root,
// which takes a sandbox; it is not where the step is known already.
func (w *work) account(ctx context.Context, st *stage, key string) (account, error) {
	if u, _, grouped := strings.Cut(st.user, ":"); u == "" || (u == "root" || u == "0") && !grouped {
		return rootAccount, nil
	}
	if _, ok := w.b.opt.Templates.Cached(ctx, key); ok {
		return rootAccount, nil // nobody will ask
	}
	s := &step{w: w}
	if err := s.open(ctx, st, false, rootAccount); err != nil {
		return account{}, err
	}
	a, err := s.look(ctx, st.user)
	if cerr := s.close(ctx); err == nil {
		err = cerr
	}
	return a, err
}

// exec runs a command to its end, and its failure is the step's.
func (s *step) exec(ctx context.Context, c command) error {
	out := &outlet{log: s.w.j.log, prefix: "  | "}
	env := map[string]string{}
	if c.as.uid == 0 {
		env["HOME"], env["USER"] = c.as.home, "root"
		env["APT_CONFIG"] = "" // the guest's root has the root's own sources
		env["DEBIAN_FRONTEND"] = "noninteractive"
	}
	maps.Copy(env, c.env)
	res, err := s.w.b.opt.Engine.Exec(ctx, s.id, api.ExecRequest{Args: c.args, Dir: c.dir, Env: env, EndAll: true}, sandbox.Streams{
		Output: func(_ sandbox.Stream, p []byte) error { out.write(p); return nil },
	})
	out.end()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if res.Ending == api.EndExit && res.ExitCode == 0 && res.NotStarted == "" {
		return nil
	}
	text := c.label
	e := &api.Error{Code: api.CodeBuildFailed, Hint: "see the lines of the step that failed"}
	switch {
	case res.NotStarted != "":
		text += "it could not be started: " + harmless(res.NotStarted)
	case res.Ending == api.EndExit:
		text += fmt.Sprintf("it ended with exit code %d", res.ExitCode)
		if len(out.last) > 0 {
			text += ": " + clip(out.last[len(out.last)-1], 300)
		}
	case res.Ending == api.EndTimeout:
		text += fmt.Sprintf("it was not done in %g s", s.w.limits.TimeoutSeconds)
		e.Hint = "give steps more time with --timeout"
	case res.Ending == api.EndMemory:
		text += fmt.Sprintf("it needed more than %d MiB of memory", s.w.limits.MemoryBytes>>20)
		e.Hint = "give steps more with --memory"
	case res.Ending == api.EndOutput:
		text += fmt.Sprintf("it wrote more than %d MiB to its output, and was ended", s.w.limits.OutputBytes*api.FloodFactor>>20)
		e.Hint = "let it write less, or to a file"
	default:
		text += "it was ended: " + res.Ending
		if res.Reason != "" {
			text += " (" + harmless(res.Reason) + ")"
		}
	}
	if slices.Contains(res.CapsHit, api.CapDisk) {
		text += fmt.Sprintf("; its disk of %d MiB was full", s.w.limits.DiskBytes>>20)
		e.Hint = "give steps more with --disk"
	}
	e.Message = text
	return e
}
