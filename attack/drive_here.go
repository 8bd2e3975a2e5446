package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// driveHere lets Berm take a working tree in, as a person would, and runs the
// case's program there.
func driveHere(ctx context.Context, d *Drive) error {
	r, p, o := d.run, d.run.planting, d.Seen
	if r.opt.Berm == nil {
		o.Unfit = "whoever attacks has no command line"
		return nil
	}
	t, _ := p.aim(d.Case)
	tree := t.At[0]
	files, err := d.Case.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(tree, f.Name)
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
		defer os.Remove(path)
	}
	nonce := newCanary()[len(canaryWord):]
	args := []string{"run", "--here=" + tree, "--json"}
	if r.opt.Isolation != "" {
		args = append(args, "--isolation", r.opt.Isolation)
	}
	facts, err := json.Marshal(t)
	if err != nil {
		return err
	}
	program := d.Case.Files[0].Name
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	cmd := r.opt.Berm(ctx, append(args, "--", interpreters[filepath.Ext(program)], program, nonce, string(facts))...)
	cmd.Env = slices.DeleteFunc(cmd.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(p.vars, name) // what is planted there is no setting
	})
	out, errs := newSink(p.needles, "began "+nonce, "ended "+nonce), newSink(p.needles)
	var said, grumbled bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &bounded{&said, 4 << 20}), io.MultiWriter(errs, &bounded{&grumbled, 4 << 10})
	began := time.Now()
	err = cmd.Run()
	o.Elapsed = time.Since(began)
	defer r.forgetHere(tree, said.Bytes())
	o.Began, o.Ended = out.found["began "+nonce], out.found["ended "+nonce]
	o.Bytes = out.bytes + errs.bytes
	o.Leaks = append(out.leaks("its output"), errs.leaks("what Berm said")...)
	var left *exec.ExitError
	if err != nil && !errors.As(err, &left) {
		return err
	}
	var res api.ExecResult
	if err := json.Unmarshal(said.Bytes(), &res); err != nil {
		return fmt.Errorf("berm run --here: no report: %w: %.300q", err, grumbled.String())
	}
	o.Result = &res
	return nil
}

// forgetHere takes away what Berm keeps of such a run: it would be found as left
// behind otherwise, though a person may look at it for days. No other is touched.
func (r *run) forgetHere(tree string, report []byte) {
	var of struct {
		Here struct {
			Run string `json:"run"`
		} `json:"here"`
	}
	kept := filepath.Join(r.stateDir, "here")
	if json.Unmarshal(report, &of) == nil && filepath.IsLocal(of.Here.Run) && of.Here.Run != "." {
		os.RemoveAll(filepath.Join(kept, "runs", of.Here.Run))
	}
	trees, _ := filepath.Glob(filepath.Join(kept, "trees", "*", "of"))
	for _, t := range trees {
		if of, _, _ := strings.Cut(readText(t), "\n"); of == tree {
			os.RemoveAll(filepath.Dir(t))
		}
	}
	for _, dir := range []string{"runs", "trees", "."} {
		os.Remove(filepath.Join(kept, dir)) // if nobody else's is there
	}
}
