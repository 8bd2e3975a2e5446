package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// copyIn sends everything that goes in as one tar stream, or two if some of it
// goes elsewhere than below /workspace.
func (r *runner) copyIn(ctx context.Context) error {
	seen := map[string]string{}
	for _, root := range []string{api.Workspace, "/"} {
		var items []copyIn
		for _, c := range r.opt.in {
			below := c.dest == api.Workspace || strings.HasPrefix(c.dest, api.Workspace+"/")
			if below == (root == api.Workspace) {
				items = append(items, c)
			}
		}
		if len(items) == 0 {
			continue
		}
		if err := r.sendTar(ctx, root, items, seen); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) sendTar(ctx context.Context, root string, items []copyIn, seen map[string]string) error {
	return streamTar(ctx, r.session.Client, r.sandbox.SandboxID, root, items, &tarWriter{
		root: root, seen: seen,
		warn:    func(s string) { r.env.note("%s", s) },
		counter: func(n int64) { r.progress.update("copying in", n, 0) },
	})
}

// copyInRefused names what went in, where the sandbox only knows one stream.
func copyInRefused(items []copyIn, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Code != api.CodeFileRefused {
		return err
	}
	what := "copy in"
	if len(items) == 1 {
		what += " to " + items[0].dest
	}
	why := ae.Message[strings.LastIndex(ae.Message, ": ")+1:] // after the steps of the sandbox
	e := *ae
	e.Message = what + ": refused inside: " + strings.TrimSpace(why)
	e.Hint = "copy it below /workspace, /tmp or /home/agent, where the program's user may write"
	return &e
}

// execute runs the steps one after the other, within one timeout.
func (r *runner) execute(ctx context.Context) (ran bool, err error) {
	sio := client.Stdio{Stdout: r.stdout.w, Stderr: r.stderr.w}
	var size [2]uint16
	if r.opt.tty {
		restore, err := makeRaw(r.env.Stdin)
		if err != nil {
			return false, &fault{"-t", err.Error(), ""}
		}
		r.restore.Store(&restore)
		defer restore()
		sizes, stop := watchSize(r.env.Stdin)
		defer stop()
		size, sio.Resize = windowSize(r.env.Stdin), sizes
	}
	limit := r.sandbox.Limits.TimeoutSeconds
	began := time.Now()
	for i, s := range r.steps {
		if ctx.Err() != nil {
			return i > 0, context.Cause(ctx)
		}
		req := api.ExecRequest{Args: s.args, Env: maps.Clone(s.env), User: r.opt.user}
		if req.Env == nil {
			req.Env = map[string]string{}
		}
		r.here.prepare(&req)
		maps.Copy(req.Env, r.opt.env)
		req.EndAll = true // nothing of it may run while files are brought out
		if limit > 0 {    // said each time, for the client to know it too
			req.TimeoutSeconds = limit
			if i > 0 {
				req.TimeoutSeconds = max(limit-time.Since(began).Seconds(), 0.001)
			}
		}
		if i == len(r.steps)-1 {
			req.Stdin, req.TTY, req.Rows, req.Cols = r.opt.stdin || r.opt.tty, r.opt.tty, size[0], size[1]
			if req.Stdin {
				sio.Stdin = r.env.Stdin
			}
		}
		res, err := r.session.Client.Exec(ctx, r.sandbox.SandboxID, req, sio)
		if errors.As(err, &r.unread) {
			err = r.unread.Err
		}
		var ae *api.Error
		switch {
		case errors.As(err, &ae):
			return i > 0, err
		case err != nil && context.Cause(ctx) != nil:
			return true, err
		case err != nil && r.unread != nil:
			res = api.ExecResult{Ending: api.EndKilled, ExitCode: exitKilled, Reason: "nobody read the output for too long"}
		case errors.Is(err, client.ErrOutput):
			res = api.ExecResult{Ending: api.EndKilled, ExitCode: exitKilled, Reason: outputTrouble(err)}
		case err != nil:
			res = api.ExecResult{Ending: api.EndHostFailure, ExitCode: exitRefused, Reason: err.Error()}
		}
		res.CapsHit = union(r.result.CapsHit, res.CapsHit)
		for part, name := range map[string]string{"wait": "exec_wait", "exec": "exec_program"} {
			r.report.TimingsMS[name] += res.TimingsMS[part]
		}
		r.result = res
		if res.NotStarted != "" && s.interp != "" {
			return false, r.noInterpreter(s, res)
		}
		if res.Ending != api.EndExit || res.ExitCode != 0 || r.unread != nil {
			break
		}
	}
	return true, nil
}

// noInterpreter explains a missing interpreter and how to get it.
func (r *runner) noInterpreter(s step, res api.ExecResult) error {
	e := &api.Error{Code: api.CodeInterpreterMissing,
		Message: fmt.Sprintf("%s: is not in template %s, so nothing was executed", s.interp, r.report.Template)}
	if res.ExitCode != exitNotFound {
		e.Message = fmt.Sprintf("%s: cannot be executed in template %s: %s", s.interp, r.report.Template, res.NotStarted)
	}
	switch {
	case r.report.Template != "host":
		e.Hint = "berm run --template host, or a template that has " + s.interp
	case s.pkg != "":
		e.Hint = "apt-get install " + s.pkg + "  (the host template is then made anew by itself)"
	default:
		e.Hint = "install " + s.interp + " on this host (the host template is then made anew by itself)"
	}
	return e
}

// bringOut brings the artifacts; what was refused is in the report.
func (r *runner) bringOut(ctx context.Context) {
	haul, err := client.Extract(ctx, r.session.Client, r.sandbox.SandboxID, r.opt.out, r.opt.outLimit)
	r.report.Artifacts = append(r.report.Artifacts, haul.Artifacts...)
	r.replaced = haul.Replaced
	r.explainEnded(haul.Denied)
	r.report.Denied = append(r.report.Denied, haul.Denied...)
	if err != nil && context.Cause(ctx) == nil {
		r.failure = err
	}
}

// outputTrouble says why this side took no more output.
func outputTrouble(err error) string {
	var pe *fs.PathError
	switch {
	case errors.Is(err, syscall.EPIPE):
		return "nobody reads the output any more"
	case errors.As(err, &pe):
		return "the output could not be written: " + pe.Err.Error()
	}
	return err.Error()
}

// union is the caps of both, each once.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, c := range b {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}
