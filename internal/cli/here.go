package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/here"
)

// hereOptions are the flags of a tree that goes in.
type hereOptions struct {
	on               bool
	dir              string // "" is where berm was called
	include, exclude []string
	noIgnored        bool

	tree string // dir, absolute and without links
}

func (o *hereOptions) flags() flags {
	return flags{
		{name: "here", maybe: "DIR", help: "the folder where you are, or DIR, goes in as a copy, as /workspace; berm diff shows what changed; see Here", set: func(s string) error {
			o.on, o.dir = true, s
			return nil
		}},
		{name: "here-include", value: "PATTERN", help: "take what matches, though it looks like a credential or is ignored; as in a .gitignore (repeat)", set: more(&o.include)},
		{name: "here-exclude", value: "PATTERN", help: "leave out what matches; as in a .gitignore (repeat)", set: more(&o.exclude)},
		{name: "no-ignored", help: "leave out what .gitignore files name, node_modules and the like too", set: toggle(&o.noIgnored)},
	}
}

// check refuses what cannot be meant, before anything is started.
func (o *hereOptions) check() error {
	if !o.on {
		if len(o.include)+len(o.exclude) > 0 || o.noIgnored {
			return &fault{"--here-include, --here-exclude and --no-ignored", "say what of a tree goes in, and none does", "berm run --here ..."}
		}
		return nil
	}
	dir := o.dir
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return &fault{"--here", dir + ": " + unwrapPath(err).Error(), "berm run --here=DIR"}
	}
	o.tree = abs
	if fi, err := os.Stat(abs); err != nil || !fi.IsDir() {
		return &fault{"--here", dir + " is not a folder", "berm run --here=DIR"}
	}
	home, _ := os.UserHomeDir()
	if h, err := filepath.EvalSymlinks(home); err == nil {
		home = h
	}
	if o.dir == "" && (abs == "/" || home != "" && (home == abs || strings.HasPrefix(home, abs+"/"))) {
		return &fault{"--here", abs + " is more than a project: all that is in it would go in", "--here=" + shellLine([]string{abs}) + ", if you mean it"}
	}
	return nil
}

// codeName is what code without a file of its own is called inside: beside a
// tree it must take no name of the tree's.
func (o *hereOptions) codeName(name string) string {
	if o.on {
		return here.BesideName(name)
	}
	return name
}

// inTree says where in the tree a file lies.
func (o *hereOptions) inTree(name string) (rel string, ok bool) {
	if !o.on {
		return "", false
	}
	abs, err := filepath.Abs(name)
	if err == nil {
		var dir string
		if dir, err = filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
			rel, err = filepath.Rel(o.tree, filepath.Join(dir, filepath.Base(abs)))
		}
	}
	return rel, err == nil && filepath.IsLocal(rel)
}

// hereState is where trees and runs are kept, and the state directory.
func (env *Env) hereState() (*here.State, string, error) {
	if env.StateFor == nil {
		return nil, "", &fault{"--here", "this build keeps nothing", "berm version"}
	}
	dir, err := env.StateFor(env.StateDir)
	if err != nil {
		return nil, "", err
	}
	st, err := here.OpenState(dir)
	return st, dir, err
}

// A hereRun is the tree of one run.
type hereRun struct {
	state *here.State
	tree  *here.Tree
	scan  chan hereScan
	sent  *here.Synced
	kept  *here.Run
}

type hereScan struct {
	s   *here.Scan
	err error
}

// startHere begins to look at the tree, while the rest is being started.
func (r *runner) startHere() error {
	o := &r.opt.here
	if !o.on {
		return nil
	}
	st, dir, err := r.env.hereState()
	if err != nil {
		return err
	}
	opt := here.Options{NoIgnored: o.noIgnored, State: dir}
	if opt.Include, err = here.ParsePatterns(o.include); err != nil {
		return &fault{"--here-include", err.Error(), "berm help run"}
	}
	if opt.Exclude, err = here.ParsePatterns(o.exclude); err != nil {
		return &fault{"--here-exclude", err.Error(), "berm help run"}
	}
	tree, err := here.Open(o.tree, opt)
	if err != nil {
		return err
	}
	h := &hereRun{state: st, tree: tree, scan: make(chan hereScan, 1)}
	server := "state " + dir
	if url := firstOf(r.env.URL, os.Getenv("BERM_URL")); url != "" && !r.opt.noDaemon {
		server = "url " + url
	}
	go func() {
		s, err := tree.Scan(st, server)
		h.scan <- hereScan{s, err}
	}()
	r.here = h
	return nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// close lets go of the tree. A scan that still goes on sees that it is gone.
func (h *hereRun) close() {
	if h == nil {
		return
	}
	go func() {
		<-h.scan // closed, or the last one
		h.tree.Close()
	}()
}

// sendHere sees to it that the server has the tree, and returns its id; "" where
// none goes in.
func (r *runner) sendHere(ctx context.Context) (string, error) {
	h := r.here
	if h == nil {
		return "", nil
	}
	r.progress.phase("looking at the tree")
	var got hereScan
	select {
	case got = <-h.scan:
		close(h.scan)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if got.err != nil {
		return "", got.err
	}
	sent, err := got.s.Sync(ctx, r.session.Client, func(done, total int64) { r.progress.update("copying the tree", done, total) })
	if err != nil {
		var ae *api.Error
		if errors.As(err, &ae) && (ae.Code == api.CodeNoRoute || ae.Code == api.CodeUnavailable) {
			return "", &fault{"--here", "this server keeps no trees: " + ae.Message, "berm run --no-daemon --here ..."}
		}
		return "", err
	}
	h.sent = sent
	r.progress.phase("")
	r.report.Here = &api.HereReport{Run: r.report.RunID, Tree: h.tree.Dir, Files: len(sent.Entries), Uploaded: sent.Uploaded, Skipped: []api.HereSkip{}}
	for i, s := range sent.Skips {
		if i == 1000 {
			r.report.Here.SkippedTruncated = true
			break
		}
		r.report.Here.Skipped = append(r.report.Here.Skipped, api.HereSkip{Path: strings.ToValidUTF8(s.Path, "\uFFFD"), Why: s.Why})
	}
	if !r.opt.json {
		r.tellSkips()
	}
	return sent.ID, nil
}

// tellSkips says what did not go in, and what to do about it.
func (r *runner) tellSkips() {
	sent := r.here.sent
	for _, k := range []struct{ why, text string }{
		{here.WhyCredential, "left out %s that may be credentials: %s (--here-include PATTERN takes them)"},
		{here.WhySpecial, "left out %s that are neither files, folders nor links: %s"},
		{here.WhyUnreadable, "left out %s that you cannot read: %s"},
		{here.WhyName, "left out %s for their names: %s"},
	} {
		const most = 4
		var names []string
		n := 0
		for _, s := range sent.Skips {
			if s.Why == k.why {
				if n++; n <= most {
					names = append(names, s.Path)
				}
			}
		}
		if n > most {
			names = append(names, "...")
		}
		if n > 0 {
			r.env.note("here: "+k.text, counted1(n, "file"), strings.Join(names, ", "))
		}
	}
	for _, n := range sent.Notes {
		r.env.note("here: %s", n)
	}
}

func counted1(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// prepare lets a command see the tree: it runs in it, and git inside does not
// read every file anew because the copy has other inodes.
func (h *hereRun) prepare(req *api.ExecRequest) {
	if h == nil {
		return
	}
	req.Dir = api.Workspace
	maps.Copy(req.Env, map[string]string{
		"GIT_OPTIONAL_LOCKS": "0", // or "git status" is a change, of the index
		"GIT_CONFIG_COUNT":   "3",
		"GIT_CONFIG_KEY_0":   "core.checkStat", "GIT_CONFIG_VALUE_0": "minimal",
		"GIT_CONFIG_KEY_1": "core.trustctime", "GIT_CONFIG_VALUE_1": "false",
		"GIT_CONFIG_KEY_2": "safe.directory", "GIT_CONFIG_VALUE_2": api.Workspace,
	})
}

// How long the changes of a run may take, and those of one that was interrupted.
const (
	changesTime = 10 * time.Minute
	lateTime    = 8 * time.Second
)

// keepHere brings what the run changed, however it ended, and keeps it. Nothing
// is written to the tree.
func (r *runner) keepHere(ctx context.Context, failed error) {
	h := r.here
	limit := changesTime
	if ctx.Err() != nil {
		ctx, limit = context.WithoutCancel(ctx), lateTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res := r.result
	if failed != nil && res.Ending == "" {
		res = api.ExecResult{Ending: api.EndKilled, ExitCode: exitKilled}
	}
	info := here.Info{ID: r.report.RunID, Tree: h.tree.Dir, Template: r.report.Template, Ended: time.Now().UTC(), Ending: res.Ending, ExitCode: res.ExitCode & 0xff}
	if n := len(r.steps); n > 0 {
		info.Command = r.steps[n-1].args
	}
	lim := here.Limits{Bytes: r.opt.outLimit}
	for _, c := range r.opt.in {
		if rel, ok := strings.CutPrefix(c.dest, api.Workspace+"/"); ok {
			lim.Pass = append(lim.Pass, rel)
		}
	}
	stream, err := r.session.Client.Changes(ctx, r.sandbox.SandboxID, api.Workspace)
	if err != nil {
		info.Lost = oneLine(err.Error())
		if res.Ending == api.EndMemory {
			info.Lost = "memory ended the sandbox, and its files with it"
		}
		h.kept, err = h.state.Keep(info, h.tree, nil, nil, lim)
	} else {
		stop := context.AfterFunc(ctx, func() { stream.Close() })
		h.kept, err = h.state.Keep(info, h.tree, h.sent.Entries, stream, lim)
		stop()
		stream.Close()
	}
	if err != nil {
		r.failure = err
		r.report.Here.Lost = oneLine(err.Error())
		return
	}
	rep := r.report.Here
	rep.Changed, rep.Added, rep.Removed = h.kept.Count()
	rep.Bytes, rep.Cut, rep.Lost = h.kept.Bytes, oneLine(h.kept.Cut), h.kept.Lost
}

// tellHere says in a line what became of the tree.
func (r *runner) tellHere() {
	if r.here == nil || r.here.kept == nil {
		return
	}
	rep, id := r.report.Here, r.report.RunID[:min(len(r.report.RunID), 10)]
	switch {
	case rep.Lost != "":
		r.env.note("here: what it changed is lost: %s", rep.Lost)
		return
	case rep.Changed+rep.Added+rep.Removed > 0:
		r.env.note("here: %d changed, %d added, %d removed; to look: berm diff %s", rep.Changed, rep.Added, rep.Removed, id)
	case isTerminal(r.env.Stderr):
		r.env.note("here: nothing was changed")
	}
	if rep.Cut != "" {
		r.env.note("here: not all of it came: %s", rep.Cut)
	}
}
