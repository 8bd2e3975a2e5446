package attack

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// An attempt is one case in one sandbox.
type attempt struct {
	c         Case
	s         *Session
	o         *Observation
	needles   []needle
	target    target
	isolation string
	id        string       // of the sandbox, once there is one
	dir       string       // for artifacts, made here
	paths     []string     // of planted files
	known     map[int]bool // processes from before the session
	words     string       // what Berm itself wrote about it
	egress    json.RawMessage
	nonce     string     // that the program prints
	n         *neighbour // nil: none
	tail      bytes.Buffer
	tools     string       // where given tools are
	told      bytes.Buffer // the report of a tool

	during func(ctx context.Context)       // from when the program runs until it ends; nil: nothing
	after  func(ctx context.Context) error // when it ended; nil: nothing
}

// maxOut is how many bytes one case may bring out.
const maxOut = 64 << 20

// maxBring is how long that may take, however busy the host.
const maxBring = 15 * time.Second

// run does the case and fills the observation. An error says why there is no
// result; what was seen until then stands.
func (a *attempt) run(ctx context.Context) error {
	limit := time.Duration(a.c.Limits.TimeoutSeconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(ctx, limit+30*time.Second)
	defer cancel()
	var aside map[int]bool
	if a.c.Family == exhaustion {
		n, err := moveIn(ctx, a.s, a.isolation)
		if err != nil {
			return err
		}
		a.n, aside = n, n.pids
		defer func() {
			if slowed(a.o.Neighbour, nil) { // the case's sandbox is gone by now
				a.o.Control, _ = beside(context.WithoutCancel(ctx), a.s, a.isolation, a.c.Limits)
			}
			n.leave()
		}()
	}
	next, err := a.beside(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		a.o.Beside = a.served(ctx, next)
	}()
	w := watch(a.paths, a.known, aside)
	defer func() {
		w.end()
		a.o.Serving = w.serving
		a.o.Looked, a.o.Loose = w.looked, w.missing(a.c.lacks())
		a.o.Tasks, a.o.Memory, a.o.Disk = w.tasks, w.memory, w.disk
	}()
	sb, err := a.s.Client.Create(ctx, api.CreateRequest{Template: a.s.Template, Isolation: a.isolation, Limits: a.c.Limits, Egress: a.egress})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	a.id, a.o.Isolation, a.o.Boundary = sb.SandboxID, sb.Isolation, sb.Boundary
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		end, err := a.s.Client.Delete(ctx, sb.SandboxID)
		a.say(end, err)
		a.o.CapsHit = union(a.o.CapsHit, end.CapsHit)
		a.o.Misplaced = append(a.o.Misplaced, boasts(a.c, end)...)
		for _, d := range end.Denied {
			a.o.Denied = union(a.o.Denied, []string{cmp.Or(d.Code, d.Reason)})
		}
	}()
	archive, err := a.archive()
	if err == nil {
		err = a.s.Client.TarIn(ctx, sb.SandboxID, api.Workspace, archive)
	}
	if err != nil {
		return fmt.Errorf("copy in: %w", err)
	}
	err = a.exec(ctx, w, sb.SandboxID)
	if err != nil {
		return err
	}
	if a.after != nil {
		if err := a.after(ctx); err != nil {
			return fmt.Errorf("after the program: %w", err)
		}
	}
	if len(a.c.Out) > 0 {
		if err := a.bringOut(ctx, sb.SandboxID); err != nil {
			return err
		}
	}
	if a.c.Alive {
		a.o.Deaf = a.ping(ctx, sb.SandboxID)
	}
	return nil
}

// stdin is what the program is fed. Where that is nothing, its end is what the
// program waits for: it comes when the walls were looked at.
func (a *attempt) stdin() (env map[string]string, in io.Reader, looked io.Closer) {
	env = map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}
	r, w := io.Pipe()
	if a.c.Stdin > 0 {
		return env, io.LimitReader(zeros{}, a.c.Stdin), w
	}
	env["BERM_ATTACK_LOOKS"] = "1"
	return env, r, w
}

// exec runs the program to its end.
func (a *attempt) exec(ctx context.Context, w *watcher, id string) error {
	a.nonce = newCanary()[len(canaryWord):]
	if a.c.StandIn != "" {
		w.word = "berm-" + a.nonce
	}
	begin, end := "began "+a.nonce, "ended "+a.nonce
	facts, err := json.Marshal(a.target)
	if err != nil {
		return err
	}
	share := func() float64 { return -1 }
	var outside sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer outside.Wait()
	defer stop()
	out, errs := newSink(a.needles, begin, end), newSink(a.needles)
	env, in, looked := a.stdin()
	defer looked.Close()
	out.onMark = func(m string) {
		if m == begin {
			share = newMeter(w.born()).share
			w.confined()
			looked.Close()
			if a.during != nil {
				outside.Go(func() { a.during(ctx) })
			}
		}
	}
	if a.n != nil {
		a.n.listen(ctx)
	}
	started := time.Now()
	res, err := a.s.Client.Exec(ctx, id, api.ExecRequest{
		Args: a.c.command(a.nonce, string(facts)),
		Env:  env, Stdin: true,
	}, client.Stdio{Stdin: in, Stdout: io.MultiWriter(out, &bounded{&a.tail, maxTimes}, &bounded{&a.told, a.c.maxReport()}), Stderr: errs})
	a.o.Elapsed, a.o.CPUs = time.Since(started), share()
	if out.found[begin] {
		w.confined() // again: what it was at its start is not what it may have become
	}
	if a.n != nil {
		a.n.hush()
		a.o.Neighbour, a.o.Unserved = a.n.figures(), a.n.failed
	}
	a.o.Began, a.o.Ended = out.found[begin], out.found[end]
	a.o.readTool(a.c, a.report())
	a.o.Bytes = out.bytes + errs.bytes
	a.o.Took, a.o.Slowest = took(a.tail.Bytes())
	a.o.Said = string(out.head[:min(len(out.head), 100)]) + " ... " + string(errs.head[:min(len(errs.head), 400)])
	a.o.Leaks = append(out.leaks("its output"), errs.leaks("its error output")...)
	a.say(res, err)
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	a.o.Result, a.o.CapsHit = &res, res.CapsHit
	return nil
}

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// bringOut extracts into a folder where two traps lie: a link to a file outside
// of it and a link to a folder outside of it.
func (a *attempt) bringOut(ctx context.Context, id string) error {
	out, outside := filepath.Join(a.dir, "out"), filepath.Join(a.dir, "outside")
	defer os.RemoveAll(a.dir)
	kept := filepath.Join(outside, "kept.txt")
	err := errors.Join(os.MkdirAll(out, 0o755), os.MkdirAll(outside, 0o755), os.WriteFile(kept, []byte("kept"), 0o644),
		os.Symlink(kept, filepath.Join(out, "trap.txt")), os.Symlink(outside, filepath.Join(out, "trap")))
	if err != nil {
		return fmt.Errorf("lay traps: %w", err)
	}
	before := []string{filepath.Join(out, "trap.txt"), filepath.Join(out, "trap")}
	var outs []client.Out
	for _, p := range a.c.Out {
		outs = append(outs, client.Out{Pattern: p, Local: out})
	}
	extract := a.s.Extract
	if extract == nil {
		extract = client.Extract
	}
	began := time.Now()
	haul, err := extract(ctx, a.s.Client, id, outs, maxOut)
	took := time.Since(began)
	a.say(haul, err)
	for _, d := range haul.Denied {
		if !slices.Contains(a.o.Denied, d.Rule) {
			a.o.Denied = append(a.o.Denied, d.Rule)
		}
	}
	a.o.Brought = weigh(out)
	a.o.Artifacts, a.o.Misplaced = scanArtifacts(a.needles, out, before)
	if !dotsAsked(a.c.Out) {
		a.o.Misplaced = append(a.o.Misplaced, dots(out)...)
	}
	if took > maxBring {
		a.o.Misplaced = append(a.o.Misplaced, fmt.Sprintf("it took %.0f s to bring out what there was", took.Seconds()))
	}
	for _, b := range before {
		if fi, err := os.Lstat(b); err != nil || fi.Mode()&os.ModeSymlink == 0 {
			a.o.Misplaced = append(a.o.Misplaced, "a link on the host was replaced: "+filepath.Base(b))
		}
	}
	for path, want := range map[string]int{outside: 1, a.dir: 2} {
		if n := len(names(path)); n != want {
			a.o.Misplaced = append(a.o.Misplaced, fmt.Sprintf("%d entries in %s, not %d: something came out beside its folder", n, path, want))
		}
	}
	if readText(kept) != "kept" {
		a.o.Misplaced = append(a.o.Misplaced, "a file outside of the folder was written through a link")
	}
	if err != nil {
		return fmt.Errorf("bring out: %w", err)
	}
	return nil
}

// ping asks the sandbox for one more, honest command.
func (a *attempt) ping(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var out bytes.Buffer
	res, err := a.s.Client.Exec(ctx, id, api.ExecRequest{Args: []string{"echo", "still here"}}, client.Stdio{Stdout: &bounded{&out, 100}})
	a.say(res, err)
	switch {
	case err != nil:
		return err.Error()
	case res.Ending != api.EndExit || strings.TrimSpace(out.String()) != "still here":
		return fmt.Sprintf("echo ended by %s and said %.60q", res.Ending, out.String())
	}
	return ""
}

// archive holds the program and what lies beside it.
func (a *attempt) archive() (*bytes.Buffer, error) {
	files, err := a.c.files()
	if err != nil {
		return nil, err
	}
	given, err := a.given()
	if err != nil {
		return nil, err
	}
	files = append(files, given...)
	return archiveOf(files...)
}

// archiveOf holds files.
func archiveOf(files ...File) (*bytes.Buffer, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, f := range files {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: 0o755, Size: int64(len(f.Data)), Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := tw.Write(f.Data); err != nil {
			return nil, err
		}
	}
	return &b, tw.Close()
}

// say keeps what Berm wrote, to be looked through for needles.
func (a *attempt) say(v any, err error) {
	b, _ := json.Marshal(v)
	a.words += string(b) + "\n"
	if err != nil {
		a.words += err.Error() + "\n"
	}
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
