package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// Bounds of one exec request.
const (
	maxArgs     = 4096
	maxArgBytes = 768 << 10 // arguments and environment together
	maxPath     = 4096
)

// baseEnv is what every command finds, whatever the host's environment holds.
var baseEnv = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin",
	"HOME": api.GuestHome,
	"USER": api.GuestUser,
	"LANG": "C.UTF-8",

	// What Python printed is out when it is ended, and comes out live.
	"PYTHONUNBUFFERED": "1",
}

// plan turns a request into what the guest is asked, or refuses it.
func (b *box) plan(req api.ExecRequest) (guest.Start, time.Duration, error) {
	bad := func(format string, args ...any) (guest.Start, time.Duration, error) {
		return guest.Start{}, 0, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
	}
	if len(req.Args) == 0 || req.Args[0] == "" {
		return bad("args: no command given")
	}
	if len(req.Args)+len(req.Env) > maxArgs {
		return bad("args: more than %d arguments and variables", maxArgs)
	}
	size := 0
	for _, a := range req.Args {
		if strings.ContainsRune(a, 0) {
			return bad("args: an argument holds a zero byte")
		}
		size += len(a)
	}
	env := make(map[string]string, len(req.Env)+7)
	for k, v := range baseEnv {
		env[k] = v
	}
	if req.TTY {
		env["TERM"] = "xterm-256color"
	}
	dir := req.Dir
	if dir == "" {
		dir = api.Workspace
	}
	if !path.IsAbs(dir) || len(dir) > maxPath || strings.ContainsRune(dir, 0) {
		return bad("dir: %.60q is not an absolute path", dir)
	}
	env["PWD"] = dir
	for k, v := range req.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return bad("env: %.60q is not a variable", k)
		}
		size += len(k) + len(v)
		env[k] = v
	}
	if size > maxArgBytes {
		return bad("args: arguments and environment are longer than %d bytes", maxArgBytes)
	}

	limit := b.spec.Limits.TimeoutSeconds
	secs := req.TimeoutSeconds
	switch {
	case secs == 0:
		secs = limit
	case secs != secs || secs < 0 && secs != api.Unlimited:
		return bad("timeout_seconds: %g is no time", secs)
	case limit != api.Unlimited && (secs == api.Unlimited || secs > limit):
		return bad("timeout_seconds: more than the sandbox's own %g", limit)
	}
	var timeout time.Duration
	if secs != api.Unlimited {
		timeout = max(seconds(secs), time.Millisecond)
	}

	st := guest.Start{
		ID: api.NewID(api.KindExec), Args: req.Args, Dir: dir,
		UID: api.GuestUID, GID: api.GuestGID,
		Stdin: req.Stdin || req.TTY, TTY: req.TTY, Rows: req.Rows, Cols: req.Cols,
		Pids: max(b.spec.Limits.Pids, 0), MemoryBytes: max(b.spec.Limits.MemoryBytes, 0),
	}
	for k, v := range env {
		st.Env = append(st.Env, k+"="+v)
	}
	slices.Sort(st.Env)
	return st, timeout, nil
}
