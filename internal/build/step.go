package build

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/template"
)

// A step is a sandbox whose changes become a layer.
type step struct {
	w    *work
	id   string
	drop []string // places whose changes are nobody's: below mounts
	// denied is what its wire refused, once it is over.
	denied []api.Denial
}

// An account is a user of a root.
type account struct {
	uid, gid uint32
	home     string
}

var rootAccount = account{home: "/root"}

// layer makes a layer of what do changes in a sandbox on the stage's root, or
// finds the one that was made before. Whatever happens, the sandbox is gone when
// it returns. link says that the sandbox has one, with the step's policy.
func (w *work) layer(ctx context.Context, st *stage, key string, link bool, as account, drop []string, do func(context.Context, *step) error) error {
	if root, ok := w.b.opt.Templates.Cached(ctx, key); ok {
		w.j.log.add("  cached")
		st.root.Layers = root.Layers
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s := &step{w: w, drop: drop}
	err := s.open(ctx, st, link, as)
	if err != nil {
		return err
	}
	var made template.Made
	if err = do(ctx, s); err == nil {
		made, err = s.keep(ctx, st, key)
	}
	if cerr := s.close(ctx); err == nil && cerr != nil {
		err = cerr
	}
	for _, d := range s.denied {
		text := fmt.Sprintf("  denied: %s: %s", d.Target, d.Reason)
		if d.Fix != "" {
			text += fmt.Sprintf("; to allow it: --allow %s", d.Fix)
		}
		w.j.log.add(text)
	}
	if err != nil {
		return s.explain(err)
	}
	st.root.Layers = made.Root.Layers
	return nil
}

// explain adds to an error what the wire refused.
func (s *step) explain(err error) error {
	var ae *api.Error
	if len(s.denied) == 0 || !errors.As(err, &ae) || ae.Code != api.CodeBuildFailed {
		return err
	}
	e, d := *ae, s.denied[0]
	e.Message += fmt.Sprintf("; its network refused %s (%s)", harmless(d.Target), harmless(d.Reason))
	if d.Fix != "" {
		e.Hint = "to allow it: --allow " + d.Fix
	}
	return &e
}

// open makes the sandbox. Should its caller leave meanwhile, it is not left.
func (s *step) open(ctx context.Context, st *stage, link bool, as account) error {
	w := s.w
	root := image.Root{Layers: st.root.Layers, Defaults: image.Defaults{
		TemplateConfig: api.TemplateConfig{Env: st.env, User: st.user, Workdir: "/"},
		UID:            as.uid, GID: as.gid, Home: as.home, Root: true,
	}}
	req := api.CreateRequest{Template: w.j.req.Name, Limits: w.limits, Track: true, Bound: true, Tags: map[string]string{"build": w.j.id}}
	req.TTLSeconds = min(w.limits.TimeoutSeconds+3600, api.MaxTTLSeconds)
	if w.limits.TimeoutSeconds <= 0 {
		req.TTLSeconds = api.MaxTTLSeconds
	}
	req.IdleTimeoutSeconds = req.TTLSeconds
	if link && !w.j.req.NoNetwork {
		raw, err := w.egress()
		if err != nil {
			return err
		}
		req.Egress = raw
	} // else no link at all, whatever the caller's default is
	sb, err := w.b.opt.Engine.CreateOn(ctx, req, root)
	if err != nil {
		return err
	}
	s.id = sb.SandboxID
	return nil
}

// close ends the sandbox, also when whoever asked for it has left.
func (s *step) close(ctx context.Context) error {
	if s.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	r, err := s.w.b.opt.Engine.Delete(ctx, s.id)
	s.denied, s.id = r.Denied, ""
	var ae *api.Error
	if errors.As(err, &ae) && (ae.Code == api.CodeSandboxEnded || ae.Code == api.CodeSandboxNotFound) {
		return nil
	}
	return err
}

// presets are what steps may reach by themselves: what package managers use.
var presets = []string{"apt", "pip", "npm", "go", "cargo"}

// egress is the policy of what steps run: the presets that this host has, and
// what the request names.
func (w *work) egress() (json.RawMessage, error) {
	if w.allow == nil {
		w.allow = []string{}
		for _, name := range presets {
			if w.b.opt.Presets == nil {
				break
			}
			if _, err := w.b.opt.Presets(name); err != nil {
				if name == "apt" || name == "pip" || name == "npm" {
					w.note("steps cannot use preset:%s: %v", name, err)
				}
				continue
			}
			w.allow = append(w.allow, "preset:"+name)
		}
		w.allow = append(w.allow, w.j.req.Egress...)
	}
	rules := []api.EgressRule{}
	for _, a := range w.allow {
		rules = append(rules, api.EgressRule{Allow: a})
	}
	return json.Marshal(rules)
}

// policyKey is what the key of a step says of its network: what was asked for,
// and not what that stands for today.
func (w *work) policyKey() any {
	if w.j.req.NoNetwork {
		return "none"
	}
	return slices.Sorted(slices.Values(w.j.req.Egress))
}

// keep makes a layer of all that was changed.
func (s *step) keep(ctx context.Context, st *stage, key string) (template.Made, error) {
	drop := slices.Clone(s.drop)
	if names, err := s.w.b.opt.Engine.PresetFiles(ctx, s.id); err == nil {
		drop = append(drop, names...)
	}
	in, err := s.w.b.opt.Engine.Changes(ctx, s.id, "/")
	if err != nil {
		return template.Made{}, err
	}
	defer in.Close()
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(prune(in, drop, pw)) }()
	root := image.Root{Layers: st.root.Layers, Defaults: st.root.Defaults}
	made, err := s.w.b.opt.Templates.Do(ctx, template.Job{Kind: template.JobLayer, Key: key, Below: &root}, pr, nil)
	pr.CloseWithError(errors.New("nobody reads it"))
	return made, err
}

// maxLayer bounds what one step may change, in bytes and entries.
const (
	maxLayer        = 32 << 30
	maxLayerEntries = 4_000_000
)

// prune passes a tar of changes on without the places in drop and what is below
// them. A directory that is on the way to one of them is only there for it,
// unless something else in it was changed.
func prune(r io.Reader, drop []string, w io.Writer) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for i := range drop {
		drop[i] = path.Clean("/" + drop[i])[1:]
	}
	within := func(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
	var held []*tar.Header // directories that nothing was in yet
	size := int64(0)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		name := path.Clean("/" + h.Name)[1:]
		if size += max(h.Size, 0); size > maxLayer || n > maxLayerEntries {
			return &api.Error{Code: api.CodeTemplateTooLarge, Message: fmt.Sprintf("the step changed more than %d bytes or %d files", int64(maxLayer), maxLayerEntries), Hint: api.Hint(api.CodeTemplateTooLarge)}
		}
		plain := strings.TrimPrefix(path.Base(name), ".wh.")
		if slices.ContainsFunc(drop, func(d string) bool { return within(name, d) || within(path.Join(path.Dir(name), plain), d) }) {
			continue
		}
		// A sparse file is passed on with its holes as zeros.
		for k := range h.PAXRecords {
			if strings.HasPrefix(k, "GNU.sparse.") {
				delete(h.PAXRecords, k)
			}
		}
		h.Format = tar.FormatPAX
		if h.Typeflag == tar.TypeGNUSparse {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeDir && name != "" && slices.ContainsFunc(drop, func(d string) bool { return within(d, name) }) {
			held = append(held, h)
			continue
		}
		for _, dir := range held {
			if within(name, path.Clean("/" + dir.Name)[1:]) {
				if err := tw.WriteHeader(dir); err != nil {
					return err
				}
			}
		}
		held = slices.DeleteFunc(held, func(dir *tar.Header) bool { return within(name, path.Clean("/" + dir.Name)[1:]) })
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}

// look finds a user, by name or number and with or without a group, in the root
// of the sandbox.
func (s *step) look(ctx context.Context, user string) (account, error) {
	name, group, grouped := strings.Cut(user, ":")
	if (name == "" || name == "root" || name == "0") && (!grouped || group == "root" || group == "0") {
		return rootAccount, nil
	}
	a := account{home: "/"}
	uid, number := id(name)
	found := false
	err := s.each(ctx, "/etc/passwd", func(f []string) bool {
		if len(f) < 6 || f[0] != name && (!number || f[2] != name) {
			return false
		}
		u, ok := id(f[2])
		g, ok2 := id(f[3])
		if ok && ok2 {
			a, found = account{u, g, f[5]}, true
		}
		return found
	})
	if err != nil {
		return a, err
	}
	if !found {
		if !number {
			return a, refuse("user %.60q is not in /etc/passwd of the root", name)
		}
		a.uid = uid
	}
	if !path.IsAbs(a.home) || len(a.home) > 4096 {
		a.home = "/"
	}
	if !grouped {
		return a, nil
	}
	if gid, ok := id(group); ok {
		a.gid = gid
		return a, nil
	}
	found = false
	err = s.each(ctx, "/etc/group", func(f []string) bool {
		if len(f) >= 3 && f[0] == group {
			a.gid, found = id(f[2])
		}
		return found
	})
	if err == nil && !found {
		err = refuse("group %.60q is not in /etc/group of the root", group)
	}
	return a, err
}

func id(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// each tells f the lines of a file with colons, until it is satisfied. A file
// that is not there has none.
func (s *step) each(ctx context.Context, name string, f func(fields []string) bool) error {
	r, err := s.w.b.opt.Engine.ReadFile(ctx, s.id, name, 1<<20)
	var ae *api.Error
	if errors.As(err, &ae) && ae.Code == api.CodeFileNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if errors.As(err, &ae) && ae.Code == api.CodeFileNotFound {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if f(strings.Split(strings.TrimSuffix(line, "\n"), ":")) {
			break
		}
	}
	return err
}

// flush makes a layer of what is pending.
func (w *work) flush(ctx context.Context, st *stage) error {
	if len(st.pending) == 0 {
		return nil
	}
	todo := st.pending
	st.pending = nil
	return w.layer(ctx, st, w.key("files", st.root.Layers, keys(todo)), false, rootAccount, nil, func(ctx context.Context, s *step) error {
		for _, a := range todo {
			if err := a.do(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func keys(todo []action) []any {
	out := []any{}
	for _, a := range todo {
		out = append(out, a.key)
	}
	return out
}
