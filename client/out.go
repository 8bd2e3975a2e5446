package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
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
}

// Files is the part of a Client that bringing out needs.
type Files interface {
	Glob(ctx context.Context, id, pattern string) (api.FileList, error)
	List(ctx context.Context, id, path string) (api.FileList, error)
	ReadFile(ctx context.Context, id, path string, max int64) (io.ReadCloser, error)
}

// Extract brings regular files out of a sandbox. Nothing that the sandbox says
// makes it write elsewhere than below the folders that outs name, or more than
// limit bytes in all. What it refuses is in the Haul; an error is trouble with
// this host or the connection.
func Extract(ctx context.Context, from Files, id string, outs []Out, limit int64) (Haul, error) {
	h := &haul{ctx: ctx, from: from, id: id, left: limit}
	for _, o := range outs {
		if err := h.bring(o); err != nil {
			return h.Haul, fmt.Errorf("out %s: %w", o.Pattern, err)
		}
	}
	return h.Haul, nil
}

type haul struct {
	Haul
	ctx   context.Context
	from  Files
	id    string
	left  int64
	count int
}

// bring handles one Out.
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
		h.deny(o.Pattern, &Refusal{Rule: "out.missing", Reason: "nothing inside matches"})
		return nil
	}
	glob := strings.ContainsAny(pattern, "*?[\\")
	dir, base, name := place(o, pattern, glob, list)
	t, err := OpenTarget(dir, &h.left)
	if err != nil {
		return err
	}
	defer t.Close()

	for _, f := range list.Files {
		if f.Kind != "dir" {
			if err := h.one(t, f, base, name); err != nil {
				return err
			}
			continue
		}
		below, err := h.from.List(h.ctx, h.id, f.Path)
		if err != nil {
			return err
		}
		for _, f := range below.Files {
			if f.Kind == "dir" {
				continue
			}
			if err := h.one(t, f, base, ""); err != nil {
				return err
			}
		}
		if below.More {
			h.deny(f.Path, &Refusal{Rule: "out.count", Reason: "holds more files than can be listed"})
		}
	}
	if list.More {
		h.deny(o.Pattern, &Refusal{Rule: "out.count", Reason: "matches more files than can be listed"})
	}
	return nil
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

// one brings one entry out. Only trouble with this host is an error.
func (h *haul) one(t *Target, f api.FileInfo, base, name string) error {
	refuse := func(err error) error {
		var r *Refusal
		var ae *api.Error
		switch {
		case errors.As(err, &r):
			h.deny(f.Path, r)
		case errors.As(err, &ae) && ae.Code != api.CodeSandboxEnded && ae.Code != api.CodeHostFailure:
			h.deny(f.Path, &Refusal{Rule: "out." + strings.TrimPrefix(ae.Code, "file."), Reason: ae.Message, Fix: ae.Hint})
		default:
			return err
		}
		return nil
	}
	if h.count++; h.count > MaxArtifacts {
		if h.count == MaxArtifacts+1 {
			h.deny(f.Path, &Refusal{Rule: "out.count", Reason: fmt.Sprintf("more than %d files", MaxArtifacts)})
		}
		return nil
	}
	switch f.Kind {
	case "file":
	case "symlink":
		return refuse(&Refusal{Rule: "out.symlink", Reason: "is a symlink, and none is followed", Fix: "name the file it points to"})
	default:
		return refuse(&Refusal{Rule: "out.special", Reason: "is not a regular file"})
	}
	local, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(base, "/")+"/")
	if !ok {
		return refuse(&Refusal{Rule: "out.path", Reason: "is outside of what was asked for"})
	}
	if name != "" {
		local = name
	}
	if err := SafePath(local); err != nil {
		return refuse(err)
	}
	if f.Size > h.left {
		return refuse(&Refusal{Rule: "out.limit", Reason: fmt.Sprintf("has %d bytes, %d may still come out", f.Size, h.left), Fix: "berm run --out-limit SIZE"})
	}
	r, err := h.from.ReadFile(h.ctx, h.id, f.Path, h.left)
	if err != nil {
		return refuse(err)
	}
	defer r.Close()
	a, err := t.Write(local, f.Mode, r)
	if err != nil {
		return refuse(err)
	}
	a.Path = f.Path
	h.Artifacts = append(h.Artifacts, a)
	return nil
}

// maxDenied bounds what is said about refused files.
const maxDenied = 100

func (h *haul) deny(target string, r *Refusal) {
	if len(h.Denied) < maxDenied {
		h.Denied = append(h.Denied, api.Denial{Kind: "artifact", Target: target, Rule: r.Rule, Reason: r.Reason, Fix: r.Fix})
	}
}

func notFound(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeFileNotFound
}
