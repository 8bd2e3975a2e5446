package attack

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack/world"
	"github.com/bermhq/berm/client"
)

// abreast is how many work at one time.
const abreast = 2

// runWorks lets programs do honest work, all in one session, and those with a
// link in a world.
func runWorks(ctx context.Context, opt Options, works []Work, tell teller) error {
	var here, linked []Work
	for _, w := range works {
		if len(w.Egress) > 0 {
			linked = append(linked, w)
		} else {
			here = append(here, w)
		}
	}
	if len(here) > 0 {
		s, err := opt.Open(ctx, false)
		if err != nil {
			return err
		}
		r, done := &run{opt: opt}, make([]chan Benign, len(here))
		turn := make(chan bool, abreast)
		for i, w := range here {
			done[i] = make(chan Benign, 1)
			go func() {
				turn <- true
				done[i] <- r.work(ctx, s, w)
				<-turn
			}()
		}
		for _, d := range done {
			if b := <-d; ctx.Err() == nil {
				tell.worked(b)
			}
		}
		if err := s.Close(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if len(linked) == 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	why := world.Why()
	if why == "" && opt.Again == nil {
		why = "whoever attacks cannot start itself again"
	}
	open, only := map[string]Work{}, []string{}
	for _, w := range linked {
		open[w.ID], only = w, append(only, w.ID)
	}
	failure := ""
	if why == "" {
		why, failure = inWorld(ctx, opt, only, func(l line) {
			if l.Worked == nil {
				return
			}
			if _, is := open[l.Worked.ID]; is {
				delete(open, l.Worked.ID)
				tell.worked(*l.Worked)
			}
		})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, w := range linked {
		if _, is := open[w.ID]; is {
			tell.worked(Benign{ID: w.ID, Goal: w.Goal, NotRun: why != "", Hindered: why == "", Evidence: cmp.Or(why, failure)})
		}
	}
	return nil
}

// work lets one program do its work in a sandbox of its own and compares from
// outside. Anything that is not as it wants, and any denial or cap that was
// recorded, hinders it.
func (r *run) work(ctx context.Context, s *Session, w Work) Benign {
	began := time.Now()
	b := Benign{ID: w.ID, Goal: w.Goal}
	job := &job{Work: w, s: s, isolation: r.opt.Isolation}
	lacks, wrong, err := job.run(ctx)
	switch {
	case err != nil:
		b.Hindered, b.Evidence = true, err.Error()
	case lacks != "":
		b.NotRun, b.Evidence = true, "not run: no "+lacks+" in the template (try: berm template build code-interpreter)"
	case len(wrong) > 0:
		b.Hindered, b.Evidence = true, strings.Join(wrong, "; ")
	default:
		b.Evidence = job.proof
	}
	b.Isolation, b.Evidence = job.got, harmless(b.Evidence)
	b.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	return b
}

// A job is one work in one sandbox.
type job struct {
	Work
	s         *Session
	isolation string
	got       string // the rung
	dir       string // for artifacts
	bulk      []byte
	values    map[string]string
	proof     string
}

func (j *job) run(ctx context.Context) (lacks string, wrong []string, err error) {
	limit := time.Duration(j.Limits.TimeoutSeconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(ctx, limit+30*time.Second)
	defer cancel()
	env := map[string]string{}
	for _, kv := range j.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	req := api.CreateRequest{Template: j.s.Template, Isolation: j.isolation, Limits: j.Limits, Env: env}
	if len(j.Egress) > 0 {
		var rules []api.EgressRule
		for _, a := range j.Egress {
			rules = append(rules, api.EgressRule{Allow: a})
		}
		if req.Egress, err = json.Marshal(rules); err != nil {
			return "", nil, err
		}
	}
	sb, err := j.s.Client.Create(ctx, req)
	if err != nil {
		return "", nil, fmt.Errorf("create: %w", err)
	}
	j.got = sb.Isolation
	lacks, wrong, err = j.inside(ctx, sb.SandboxID)
	end, derr := j.s.Client.Delete(context.WithoutCancel(ctx), sb.SandboxID)
	if derr != nil {
		wrong = append(wrong, "delete: "+derr.Error())
	}
	if lacks == "" {
		wrong = append(wrong, denials(end.Denied)...)
		wrong = append(wrong, capped(end.CapsHit)...)
	}
	return lacks, wrong, err
}

func denials(all []api.Denial) (out []string) {
	for _, d := range all {
		out = append(out, fmt.Sprintf("denied: %s %.120q", cmp.Or(d.Code, d.Rule), d.Reason))
	}
	return out
}

func capped(caps []string) (out []string) {
	for _, c := range caps {
		out = append(out, "it hit the cap "+c)
	}
	return out
}

// inside is all that happens while the sandbox is there.
func (j *job) inside(ctx context.Context, id string) (lacks string, wrong []string, err error) {
	if len(j.Needs) > 0 {
		var said bytes.Buffer
		look := `for c; do command -v "$c" >/dev/null || echo "$c"; done`
		if _, err := j.s.Client.Exec(ctx, id, api.ExecRequest{Args: append([]string{"sh", "-c", look, "sh"}, j.Needs...)},
			client.Stdio{Stdout: &bounded{&said, 200}}); err != nil {
			return "", nil, fmt.Errorf("look for %s: %w", strings.Join(j.Needs, ", "), err)
		}
		if said.Len() > 0 {
			return strings.Join(strings.Fields(said.String()), ", "), nil, nil
		}
	}
	j.bulk = make([]byte, j.Bulk)
	rand.Read(j.bulk)
	sum := sha256.Sum256(j.bulk)
	j.values = map[string]string{"nonce": newCanary()[len(canaryWord):], bulk: hex.EncodeToString(sum[:])}
	archive, err := j.archive()
	if err == nil {
		err = j.s.Client.TarIn(ctx, id, api.Workspace, archive)
	}
	if err != nil {
		return "", nil, fmt.Errorf("copy in: %w", err)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range j.Execs {
		all.Go(func() {
			bad := j.exec(ctx, id, n+1)
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, bad...)
		})
	}
	all.Wait()
	if len(j.Out) > 0 {
		wrong = append(wrong, j.bringOut(ctx, id)...)
	}
	return "", wrong, nil
}

func (j *job) archive() (*bytes.Buffer, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	files := j.Files
	if j.Bulk > 0 {
		files = append(files[:len(files):len(files)], File{"bulk.bin", j.bulk})
	}
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

// exec runs the program to its end, the nth of those that run at once.
func (j *job) exec(ctx context.Context, id string, n int) (wrong []string) {
	program := j.Files[0].Name
	req := api.ExecRequest{Args: []string{interpreters[path.Ext(program)], program, j.values["nonce"], strconv.Itoa(n)}, Stdin: j.Stdin != ""}
	var out, errs bytes.Buffer
	sio := client.Stdio{Stdout: &bounded{&out, 64 << 20}, Stderr: &bounded{&errs, 4 << 10}}
	switch {
	case j.Stdin == bulk:
		sio.Stdin = bytes.NewReader(j.bulk)
	case j.Stdin != "":
		sio.Stdin = strings.NewReader(j.Stdin)
	}
	began := time.Now()
	res, err := j.s.Client.Exec(ctx, id, req, sio)
	if err != nil {
		return []string{"exec: " + err.Error()}
	}
	if res.Ending != api.EndExit || res.ExitCode != j.Exit {
		wrong = append(wrong, fmt.Sprintf("it ended by %s with exit code %d, not by exit with %d; it said %.300q", res.Ending, res.ExitCode, j.Exit, errs.String()))
	}
	values := map[string]string{"n": strconv.Itoa(n)}
	for k, v := range j.values {
		values[k] = v
	}
	want := filled(j.want(stdout), values)
	if slices.Contains(j.Same, stdout) {
		want = j.bulk
	}
	if !bytes.Equal(out.Bytes(), want) {
		wrong = append(wrong, fmt.Sprintf("it printed %s; it said %.300q", differ(out.Bytes(), want), errs.String()))
	}
	j.proof = fmt.Sprintf("exit code %d after %.1f s, %d bytes of output and %d artifacts as they must be; nothing denied, no cap hit",
		res.ExitCode, time.Since(began).Seconds(), out.Len(), max(0, len(j.Want)+len(j.Same)-1))
	return append(wrong, capped(res.CapsHit)...)
}

// bringOut compares what comes out with what must.
func (j *job) bringOut(ctx context.Context, id string) (wrong []string) {
	p := &planting{word: newCanary(), kinds: map[string]*bait{}} // its guard takes the folder away if this process is killed
	defer p.uproot()
	var err error
	if p.dir, err = os.MkdirTemp("", canaryWord); err == nil {
		err = p.hold()
	}
	if err != nil {
		return []string{"a place for artifacts: " + err.Error()}
	}
	j.dir = filepath.Join(p.dir, "out")
	if err := os.Mkdir(j.dir, 0o755); err != nil {
		return []string{"a place for artifacts: " + err.Error()}
	}
	var outs []client.Out
	for _, p := range j.Out {
		outs = append(outs, client.Out{Pattern: p, Local: j.dir})
	}
	haul, err := client.Extract(ctx, j.s.Client, id, outs, 256<<20)
	if err != nil {
		wrong = append(wrong, "bring out: "+err.Error())
	}
	wrong = append(wrong, denials(haul.Denied)...)
	check := func(name string, want []byte) {
		if b, err := os.ReadFile(filepath.Join(j.dir, name)); err != nil {
			wrong = append(wrong, "artifact: "+strings.ReplaceAll(err.Error(), j.dir+"/", ""))
		} else if !bytes.Equal(b, want) {
			wrong = append(wrong, fmt.Sprintf("artifact %q is %s", name, differ(b, want)))
		}
	}
	for _, f := range j.Want {
		if f.Name != stdout {
			check(f.Name, filled(f.Data, j.values))
		}
	}
	for _, name := range j.Same {
		if name != stdout {
			check(name, j.bulk)
		}
	}
	for _, name := range j.Runs {
		if fi, err := os.Stat(filepath.Join(j.dir, name)); err != nil || fi.Mode()&0o100 == 0 {
			wrong = append(wrong, fmt.Sprintf("artifact %q is not executable", name))
		}
	}
	return wrong
}

// differ says what is there and what should be.
func differ(got, want []byte) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from := max(0, at-20)
	return fmt.Sprintf("%d bytes, not %d; from byte %d on %.80q, not %.80q", len(got), len(want), at, got[min(from, len(got)):], want[min(from, len(want)):])
}
