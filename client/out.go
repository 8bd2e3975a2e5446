package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// MaxArtifacts is how many files one run brings out.
const MaxArtifacts = 10000

// An Out says what to bring out and where to.
type Out struct {
	Pattern string // inside: a path or glob, relative to /workspace
	Local   string // on this host; "" is the current folder
}

// A Haul is what was brought out, and what was not.
type Haul struct {
	Artifacts []api.Artifact
	Denied    []api.Denial
	Replaced  []string // files that were here, as Artifact.Local names them
}

// Files is the part of a Client that bringing out needs.
type Files interface {
	Glob(ctx context.Context, id, pattern string) (api.FileList, error)
	List(ctx context.Context, id, path string) (api.FileList, error)
	ReadFile(ctx context.Context, id, path string, max int64) (io.ReadCloser, error)
}

func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?[\\") }

// Extract brings regular files out of a sandbox. Nothing that the sandbox says
// makes it write elsewhere than below the folders that outs name, or more than
// limit bytes in all. Names that start with a dot come only where the pattern
// writes the dot, .git never. Without Local, what is here already and could be
// executed or read by a tool unasked is not replaced. What did not come, for
// whatever reason, is in the Haul; the error is ctx's.
func Extract(ctx context.Context, from Files, id string, outs []Out, limit int64) (Haul, error) {
	return extract(ctx, from, id, outs, limit, usualPace)
}

// An Extractor is what Extract is.
type Extractor func(ctx context.Context, from Files, id string, outs []Out, limit int64) (Haul, error)

func extract(ctx context.Context, from Files, id string, outs []Out, limit int64, p pace) (Haul, error) {
	h := &haul{from: from, id: id, budget: budget{left: limit}, pace: p}
	var cancel context.CancelFunc
	h.ctx, cancel = context.WithTimeoutCause(ctx, p.total, errLong)
	defer cancel()
	for _, o := range outs {
		err := h.bring(o)
		switch {
		case ctx.Err() != nil:
			return h.Haul, context.Cause(ctx)
		case err == nil:
		case context.Cause(h.ctx) == errLong:
			h.deny(o.Pattern, refuseLong(p))
		default:
			h.deny(o.Pattern, refused(err))
		}
	}
	if n := h.refused - maxDenied; n > 0 {
		h.Denied = append(h.Denied, api.Denial{Kind: "artifact", Target: fmt.Sprintf("%d more", n), Rule: "out.more",
			Reason: fmt.Sprintf("were refused too; only the first %d are listed", maxDenied)})
	}
	return h.Haul, nil
}

type haul struct {
	Haul
	ctx     context.Context
	from    Files
	id      string
	budget  budget
	pace    pace
	count   int // files, brought or not
	refused int
}

// bring handles one Out. An error is about all of it, or all that was left.
func (h *haul) bring(o Out) error {
	pattern := o.Pattern
	if !path.IsAbs(pattern) {
		pattern = api.Workspace + "/" + pattern
	}
	pattern = path.Clean(pattern)
	list, err := h.from.Glob(h.ctx, h.id, pattern)
	if err != nil && !notFound(err) {
		return err
	}
	if len(list.Files) == 0 {
		return &Refusal{Rule: "out.missing", Reason: "nothing inside matches"}
	}
	dir, base, name := place(o, pattern, isGlob(pattern), list)
	t, err := openTarget(dir, &h.budget)
	if err != nil {
		return err
	}
	defer t.root.Close()
	t.careful = o.Local == ""

	p := &plan{h: h, from: pattern, base: base, seen: map[string]bool{}, taken: map[string]bool{}, dots: map[string]bool{}, gits: map[string]bool{}}
	below := map[string]bool{} // folders that were listed
	for _, f := range list.Files {
		if f.Kind != "dir" {
			p.add(f, name)
			continue
		}
		if within(below, f.Path) || p.leave(f) {
			continue
		}
		below[f.Path] = true
		l, err := h.from.List(h.ctx, h.id, f.Path)
		if err != nil {
			p.fail(f, err)
			continue
		}
		for _, g := range l.Files {
			switch {
			case g.Kind != "dir":
				p.add(g, "")
			case strings.Count(strings.TrimPrefix(g.Path, f.Path), "/") >= maxDepth: // no listing goes on from there
				h.deny(g.Path, &Refusal{Rule: "out.path", Reason: "is too deep: what it holds did not come"})
			}
		}
		if l.More {
			h.deny(f.Path, tooMany(len(l.Files)))
		}
	}
	if list.More {
		h.deny(o.Pattern, tooMany(len(list.Files)))
	}
	if n := len(p.dots); n > 0 {
		h.deny(o.Pattern, refuseHidden(n))
	}
	p.leaveBare(t)
	err = p.fetch(t)
	slices.Sort(t.replaced)
	h.Replaced = append(h.Replaced, t.replaced...)
	return err
}

func tooMany(n int) *Refusal {
	return &Refusal{Rule: "out.count", Reason: fmt.Sprintf("holds more than %d entries, which is all that one run brings out", n), Fix: "pack them into one archive inside, and bring that out"}
}

// within says whether p is below one of the folders.
func within(folders map[string]bool, p string) bool {
	for len(p) > 1 {
		p = path.Dir(p)
		if folders[p] {
			return true
		}
	}
	return false
}

// place decides the local folder, the inside folder that it stands for, and,
// for one file that gets another name, that name.
func place(o Out, pattern string, glob bool, list api.FileList) (dir, base, name string) {
	base = staticDir(pattern)
	if o.Local == "" {
		if pattern == api.Workspace || strings.HasPrefix(pattern, api.Workspace+"/") {
			base = api.Workspace
		}
		return ".", base, ""
	}
	if glob {
		return o.Local, base, ""
	}
	if list.Files[0].Kind == "dir" {
		return o.Local, pattern, ""
	}
	if fi, err := os.Stat(o.Local); strings.HasSuffix(o.Local, "/") || err == nil && fi.IsDir() {
		return o.Local, base, ""
	}
	return filepath.Dir(o.Local), base, filepath.Base(o.Local)
}

// staticDir is the deepest folder above everything that pattern can match.
func staticDir(pattern string) string {
	if i := strings.IndexAny(pattern, "*?[\\"); i >= 0 {
		pattern = pattern[:i] + "x"
	}
	return path.Dir(pattern)
}

// maxDenied bounds what is said about refused files one by one.
const maxDenied = 100

func (h *haul) deny(target string, r *Refusal) {
	if h.refused++; h.refused <= maxDenied {
		h.Denied = append(h.Denied, api.Denial{Kind: "artifact", Target: target, Rule: r.Rule, Reason: r.Reason, Fix: r.Fix})
	}
}

// refused is an error as a Refusal.
func refused(err error) *Refusal {
	var r *Refusal
	var ae *api.Error
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &ae) && ae.Code == api.CodeSandboxEnded:
		return &Refusal{Rule: "out.ended", Reason: "the sandbox had already ended, and its files with it"}
	case errors.As(err, &ae):
		return &Refusal{Rule: "out." + strings.TrimPrefix(ae.Code, "file."), Reason: ae.Message, Fix: ae.Hint}
	}
	return &Refusal{Rule: "out.ended", Reason: err.Error()}
}

// final says that after this error nothing more can come out.
func final(err error) bool {
	var r *Refusal
	var ae *api.Error
	switch {
	case err == nil, errors.As(err, &r):
		return false
	case errors.As(err, &ae):
		return ae.Code == api.CodeSandboxEnded || ae.Code == api.CodeHostFailure
	}
	return true
}

func notFound(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeFileNotFound
}
