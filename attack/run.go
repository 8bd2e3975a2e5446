package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
)

// Run attacks, one case after the other, and reports. An error means that
// nothing was measured, or that ctx ended; what was planted is gone in any case.
func Run(ctx context.Context, opt Options) (_ Report, err error) {
	began := time.Now()
	all, err := Cases()
	works, werr := Works()
	if err = errors.Join(err, werr); err == nil {
		var rest []string
		works, rest = chosen(works, opt.Only)
		if len(rest) == 0 && len(opt.Only) > 0 {
			all = nil
		} else {
			all, err = Select(all, rest)
		}
	}
	if opt.Short {
		all = slices.DeleteFunc(all, func(c Case) bool { return c.Long })
	}
	if err != nil {
		return Report{}, err
	}
	becomeReaper(1)
	defer becomeReaper(0)
	rep := newReport(opt, began)
	tell := teller{&rep, opt}
	if out, is := insider(); is {
		return rep, runInside(ctx, opt, all, works, out)
	}
	if opt.Absent != "" {
		for _, c := range all {
			tell.ended(Judge(c, Observation{Unfit: opt.Absent}))
		}
		rep.finish(opt, began)
		return rep, nil
	}
	var here, wire []Case
	for _, c := range all {
		if c.wire() {
			wire = append(wire, c)
		} else {
			here = append(here, c)
		}
	}
	if len(here) > 0 {
		if err := runHere(ctx, opt, here, tell); err != nil {
			return rep, err
		}
	}
	if len(wire) > 0 {
		if err := runOnTheWire(ctx, opt, wire, tell); err != nil {
			return rep, err
		}
	}
	if len(works) > 0 && opt.Against == nil {
		if err := runWorks(ctx, opt, works, tell); err != nil {
			return rep, err
		}
	}
	rep.finish(opt, began)
	return rep, nil
}

// A teller tells whoever listens, and keeps the results.
type teller struct {
	rep *Report
	opt Options
}

func (t teller) began(c Case) {
	if t.opt.Began != nil {
		t.opt.Began(c)
	}
}

func (t teller) ended(r Result) {
	t.rep.Cases = append(t.rep.Cases, r)
	if t.opt.Ended != nil {
		t.opt.Ended(r)
	}
}

func (t teller) worked(b Benign) {
	t.rep.Benign = append(t.rep.Benign, b)
	if t.opt.Worked != nil {
		t.opt.Worked(b)
	}
}

// runHere runs the cases that need no network of their own.
func runHere(ctx context.Context, opt Options, cases []Case, tell teller) error {
	p, err := plant()
	if err != nil {
		return fmt.Errorf("plant canaries: %w", err)
	}
	defer p.uproot()
	l, err := setLure(p)
	if err != nil {
		return err
	}
	defer l.close()

	r := &run{opt: opt, planting: p, lure: l}
	defer r.abandon()
	defer func() {
		if r.revoke != nil {
			r.revoke()
		}
	}()
	observe := r.observe
	if opt.Against != nil {
		observe = r.external
		if r.cage, err = opt.Against.ready(ctx); err != nil {
			return err
		}
		defer r.cage.open()
	} else {
		if err := r.warm(ctx, false); err != nil {
			return err
		}
		p.plantState(r.stateDir)
	}
	for _, c := range cases {
		tell.began(c)
		res := timed(func() Result { return Judge(c, observe(ctx, c)) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tell.ended(res)
	}
	return nil
}

type run struct {
	opt      Options
	planting *planting
	lure     *lure
	cage     *cage // around somebody else's sandbox
	town     *town // of the family api, once there is one
	noTown   error // why there is none
	stateDir string
	revoke   func() // takes away the template that grants root; nil: there is none
}

// warm builds what later sessions find ready, so that cases measure cases, and
// makes sure that the caps of a sandbox hold here: without them the suite's own
// hostile programs would be let loose on the host.
func (r *run) warm(ctx context.Context, link bool) error {
	s, err := r.opt.Open(ctx, link)
	if err != nil {
		return err
	}
	r.stateDir = s.StateDir
	err = held(ctx, s, r.opt.Isolation)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	calm(r.stateDir)
	return err
}

// held says whether a sandbox can be had whose caps hold.
func held(ctx context.Context, s *Session, isolation string) error {
	sb, err := s.Client.Create(ctx, api.CreateRequest{Template: s.Template, Isolation: isolation})
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.CodeCapUnenforceable {
		return &api.Error{Code: e.Code, Message: "the suite's own hostile programs could not be held here: " + e.Message, Hint: "sudo berm attack"} // caps that are given up would not do
	}
	if err != nil {
		return err
	}
	_, err = s.Client.Delete(ctx, sb.SandboxID)
	return err
}

// observe runs one case in a session of its own and gathers the evidence.
func (r *run) observe(ctx context.Context, c Case) Observation {
	var o Observation
	if c.Waits != "" {
		return o
	}
	if drive := drivers[c.Drive]; drive != nil {
		return r.driven(ctx, c, drive)
	}
	r.lure.take()
	target, unfit := r.planting.aim(c)
	if unfit != "" {
		return Observation{Unfit: unfit}
	}
	var paths []string
	if c.Handed {
		fd, err := syscall.Open(target.TmpFile, syscall.O_RDONLY, 0) // not close-on-exec
		if err != nil {
			return Observation{Failure: "leave a descriptor open: " + err.Error()}
		}
		defer syscall.Close(fd)
		target.InheritFD, paths = fd, []string{target.TmpFile}
	}
	before, had, known := look(r.stateDir), hostRoom(r.stateDir), pids()
	stored := images(r.stateDir)
	if c.User != "" {
		switch unfit, err := r.grantRoot(ctx); {
		case err != nil:
			return Observation{Failure: "a template that grants root: " + err.Error()}
		case unfit != "":
			return Observation{Unfit: unfit}
		}
	}
	s, unfit, err := r.session(ctx, c)
	if unfit != "" {
		return Observation{Unfit: unfit}
	}
	if err != nil {
		return Observation{Failure: "session: " + err.Error()}
	}
	a := &attempt{c: c, s: s, o: &o, needles: r.planting.needles, target: target, isolation: r.opt.Isolation,
		dir: filepath.Join(r.planting.dir, c.ID), known: known, paths: paths, tools: r.opt.Tools}
	if join := companions[c.Drive]; join != nil {
		join(a)
	}
	if err := a.run(ctx); err != nil && o.Failure == "" {
		o.Failure = err.Error()
	}
	if err := s.Close(); err != nil && o.Failure == "" {
		o.Failure = "close: " + err.Error()
	}
	o.settled(r.stateDir, before, a.id)
	o.Touched = append(r.planting.touched(), changed(stored, images(r.stateDir))...)
	o.Calls = r.lure.take()
	o.Leaks = append(o.Leaks, scanText(r.planting.needles, "what Berm said", a.words)...)
	o.CanLook = os.Geteuid() == 0
	o.MemorySlack, o.DiskSlack = max(512<<20, thisHost().MemoryBytes/8), 4<<30
	for end := time.Now().Add(settleTime); ; time.Sleep(50 * time.Millisecond) {
		has := hostRoom(r.stateDir)
		o.MemoryLost, o.DiskLost = had.memory-has.memory, had.disk-has.disk
		if o.MemoryLost <= o.MemorySlack && o.DiskLost <= o.DiskSlack || time.Now().After(end) {
			return o
		}
	}
}

// settled notes what the host holds that it did not hold before.
func (o *Observation) settled(stateDir string, before view, id string) {
	o.settledBy(func() view { return look(stateDir) }, before, id)
}

// settledBy is settled with another way to look.
func (o *Observation) settledBy(look func() view, before view, id string) {
	o.Left, o.Moved = settle(look, before, id)
	putBack(before)
	if n := len(o.Left); n > 8 {
		o.Left = append(o.Left[:8], fmt.Sprintf("and %d more differences", n-8))
	}
}
