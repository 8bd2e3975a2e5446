package client

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bermhq/berm/api"
)

// fetchers is how many files come out at the same time.
const fetchers = 4

// A plan is what one Out brings, in order. Who gets which name and which bytes
// is settled before the first of them is read.
type plan struct {
	h     *haul
	from  string          // the pattern, absolute
	base  string          // the folder inside that the target stands for
	seen  map[string]bool // paths inside
	taken map[string]bool // paths below the target
	dots  map[string]bool // paths inside that end in a dotted name which was not asked for
	gits  map[string]bool // the same, in .git
	jobs  []*job
}

// A job is one file: err says why it does not come.
type job struct {
	f     api.FileInfo
	local string
	a     api.Artifact
	err   error
}

func (p *plan) fail(f api.FileInfo, err error) { p.jobs = append(p.jobs, &job{f: f, err: err}) }

// leave says that an entry does not come because of its name, and notes it.
func (p *plan) leave(f api.FileInfo) bool {
	if top := repository(f.Path); top != "" {
		if !p.gits[top] {
			p.h.deny(top, refuseRepository())
		}
		p.gits[top] = true
		return true
	}
	top := hidden(p.from, f.Path)
	if top != "" {
		p.dots[top] = true
	}
	return top != ""
}

// add settles what becomes of one entry; name, if not "", is its local name.
func (p *plan) add(f api.FileInfo, name string) {
	h := p.h
	local, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(p.base, "/")+"/")
	if name != "" {
		local = name
	}
	if p.seen[f.Path] {
		return // a pattern may match a folder and what is in it
	}
	p.seen[f.Path] = true
	if p.leave(f) {
		return
	}
	if h.count++; h.count > MaxArtifacts {
		if h.count == MaxArtifacts+1 {
			p.fail(f, tooMany(MaxArtifacts))
		}
		return
	}
	switch {
	case f.Kind == "symlink":
		p.fail(f, &Refusal{Rule: "out.symlink", Reason: "is a symlink, and none is followed", Fix: "name the file it points to"})
		return
	case f.Kind != "file":
		p.fail(f, &Refusal{Rule: "out.special", Reason: "is not a regular file"})
		return
	case !ok:
		p.fail(f, &Refusal{Rule: "out.path", Reason: "is outside of what was asked for"})
		return
	case p.taken[local]:
		p.fail(f, &Refusal{Rule: "out.collision", Reason: fmt.Sprintf("%q was already brought out", local)})
		return
	}
	if err := SafePath(local); err != nil {
		p.fail(f, err)
		return
	}
	f.Size = max(f.Size, 0)
	if !h.budget.take(f.Size) {
		p.fail(f, &Refusal{Rule: "out.limit", Reason: fmt.Sprintf("has %d bytes, %d may still come out", f.Size, h.budget.rest()), Fix: "berm run --out-limit SIZE"})
		return
	}
	p.taken[local] = true
	p.jobs = append(p.jobs, &job{f: f, local: local})
}

// fetch brings the files, a few at a time, and notes what became of each. An
// error means that the rest cannot come.
func (p *plan) fetch(t *target) error {
	var next atomic.Int64
	var over atomic.Pointer[error] // why the rest does not come
	var wg sync.WaitGroup
	for range min(fetchers, len(p.jobs)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(p.jobs) || over.Load() != nil {
					return
				}
				if j := p.jobs[i]; j.err == nil {
					if j.a, j.err = p.one(t, j); final(j.err) {
						over.CompareAndSwap(nil, &j.err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, j := range p.jobs {
		switch {
		case j.err != nil && !final(j.err):
			p.h.deny(j.f.Path, refused(j.err))
		case j.err == nil && j.a.Local != "":
			p.h.Artifacts = append(p.h.Artifacts, j.a)
		}
	}
	if err := over.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *plan) one(t *target, j *job) (api.Artifact, error) {
	h := p.h
	ctx, cancel := context.WithCancelCause(h.ctx)
	defer cancel(nil)
	r := newPaced(h.pace, cancel)
	defer r.Close()
	_, err := r.wait(func() (_ int, err error) {
		r.r, err = h.from.ReadFile(ctx, h.id, j.f.Path, j.f.Size+h.budget.rest())
		return 0, err
	})
	var a api.Artifact
	if err != nil {
		h.budget.give(j.f.Size)
	} else {
		a, err = t.write(j.local, j.f.Mode, r, j.f.Size)
		a.Path = j.f.Path
	}
	switch {
	case err == nil:
	case context.Cause(ctx) == errSlow:
		err = refuseSlow(h.pace)
	case context.Cause(ctx) == errLong:
		err = errLong
	}
	return a, err
}
