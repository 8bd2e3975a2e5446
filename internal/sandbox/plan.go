package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	maxEnvBytes = 128 << 10 // of a sandbox
	maxPath     = 4096
)

// baseEnv is what every command finds, whatever the host's environment holds. The
// template's comes above it, then the sandbox's, then the request's.
var baseEnv = map[string]string{
	"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin:" + api.GuestHome + "/.local/bin",
	"HOME": api.GuestHome,
	"USER": api.GuestUser,
	"LANG": "C.UTF-8",

	// What Python printed is out when it is ended, and comes out live.
	"PYTHONUNBUFFERED": "1",
}

// A plan is a request as the guest is asked it.
type plan struct {
	start   guest.Start
	timeout time.Duration // 0: none
	secs    float64       // the same, as the answer shows it
	hash    string        // of the request
	args    []string      // as they are shown: cut at a bound
	envs    []string      // names of the request's own variables
	input   string
}

// plan turns a request into what the guest is asked, or refuses it.
func (b *box) plan(req api.ExecRequest) (plan, error) {
	bad := func(format string, args ...any) (plan, error) { return plan{}, badRequest(format, args...) }
	if req.Session != "" && req.Session != b.session {
		return plan{}, &api.Error{Code: api.CodeSessionConflict, Message: fmt.Sprintf("sandbox %s belongs to another session than %.60q", b.id, req.Session), Hint: "create a sandbox for this session"}
	}
	hash := requestHash(req)
	if req.ExecID != "" && !api.ValidID(req.ExecID) {
		return bad("exec_id: %.60q is not an id: 24 to 40 of a-z and 0-9", req.ExecID)
	}
	who, err := b.person(req.User)
	if err != nil {
		return plan{}, err
	}
	if req.Cmd != "" && len(req.Args) > 0 {
		return bad("cmd and args: exactly one of them")
	}
	if req.Cmd != "" {
		req.Args = []string{"sh", "-c", req.Cmd}
	}
	if req.Input != "" && (req.Stdin || req.TTY) {
		return bad("input and stdin or tty exclude each other")
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
	env := environ(b.defaults, who)
	b.mu.Lock()
	maps.Copy(env, b.env)
	b.mu.Unlock()
	if req.TTY {
		env["TERM"] = "xterm-256color"
	}
	dir := req.Dir
	if dir == "" {
		dir = workdir(b.defaults)
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

	secs, err := b.time(req.TimeoutSeconds)
	if err != nil {
		return plan{}, err
	}
	p := plan{secs: secs, hash: hash, args: shown(req.Args), envs: slices.Sorted(maps.Keys(req.Env)), input: req.Input}
	if secs != api.Unlimited {
		p.timeout = max(seconds(secs), time.Millisecond)
	}
	p.start = guest.Start{
		ID: cmp.Or(req.ExecID, api.NewID(api.KindExec)), Args: req.Args, Dir: dir,
		UID: who.uid, GID: who.gid,
		Stdin: req.Stdin || req.TTY || req.Input != "", TTY: req.TTY, Rows: req.Rows, Cols: req.Cols,
		Pids: max(b.spec.Limits.Pids, 0), MemoryBytes: max(b.spec.Limits.MemoryBytes, 0),
	}
	if p.timeout > 0 { // should nobody be here to see to it
		p.start.TimeoutMS = (p.timeout + hostSlack).Milliseconds()
	}
	for k, v := range env {
		p.start.Env = append(p.start.Env, k+"="+v)
	}
	slices.Sort(p.start.Env)
	return p, nil
}

// time is how long an exec may take.
func (b *box) time(secs float64) (float64, error) {
	limit := b.spec.Limits.TimeoutSeconds
	switch {
	case secs == 0:
		return limit, nil
	case secs != secs || secs < 0 && secs != api.Unlimited:
		return 0, badRequest("timeout_seconds: %g is no time", secs)
	}
	b.mu.Lock()
	most, ttl := b.most, b.ttl.Seconds()
	b.mu.Unlock()
	switch { // nobody chose the limit: the token's is one, and the sandbox's life
	case most > 0:
		limit = min(most, ttl)
	case most == api.Unlimited:
		limit = ttl
	}
	if limit != api.Unlimited && (secs == api.Unlimited || secs > limit) {
		return 0, badRequest("timeout_seconds: more than the sandbox's own %g", limit)
	}
	return secs, nil
}

// requestHash tells one request from another under the same exec_id.
func requestHash(req api.ExecRequest) string {
	req.ExecID = ""
	raw, err := json.Marshal(req)
	if err != nil {
		return "" // a number that is none; it is refused
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// maxShown is how many bytes of a command are remembered and recorded.
const maxShown = 4096

// shown are args as far as the bound goes.
func shown(args []string) []string {
	out, room := []string{}, maxShown
	for _, a := range args {
		if len(a) > room {
			return append(out, strings.ToValidUTF8(a[:room], "")+"...")
		}
		out = append(out, strings.ToValidUTF8(a, "\uFFFD"))
		room -= len(a) + 1
		if room <= 0 {
			return append(out, "...")
		}
	}
	return out
}

// argsHash is what shown leaves out.
func argsHash(args []string) string {
	h := sha256.New()
	for _, a := range args {
		io.WriteString(h, a)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}
