package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/policy"
)

// tagSession is the tag that is the session's name. The tag run_id beside it is
// free text of the caller's and has nothing to do with ids.
const (
	tagSession = "session"
	tagRun     = "run_id"
)

// aliases are template names that other products' clients send. Each stands for
// another until a template of its own name exists.
var aliases = map[string]string{"code-interpreter": "host", "base": "host", "ubuntu-24.04": "host"}

// Aliases are the template names that stand for the default template until one
// of their own name exists.
func Aliases() []string { return slices.Sorted(maps.Keys(aliases)) }

// A wanted is a create request with everything decided that needs no host.
type wanted struct {
	req        api.CreateRequest // limits and times in force
	tags       map[string]string
	session    string
	image      image.Root
	resolved   string // the template it is made from
	ttl, idle  time.Duration
	execMost   float64 // the most an exec may ask for, if nobody chose a limit; 0: somebody did
	persistent bool
	link       *asked // nil: none
}

func badRequest(format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// decide turns a request into what may be made, or refuses it.
func (e *Engine) decide(c Caller, req api.CreateRequest, on *image.Root) (w wanted, err error) {
	if w.link, err = e.links(c, &req); err != nil {
		return w, err
	}
	if err := units(&req); err != nil {
		return w, err
	}
	if w.tags, w.session, err = labels(req); err != nil {
		return w, err
	}
	if err := missing(req); err != nil {
		return w, err
	}
	if err := environment(req.Env); err != nil {
		return w, err
	}
	if req.RunID != "" && !api.ValidID(req.RunID) {
		return w, badRequest("run_id %.60q is not an id", req.RunID)
	}
	for name, v := range map[string]float64{"ttl_seconds": req.TTLSeconds, "idle_timeout_seconds": req.IdleTimeoutSeconds} {
		if err := timeOf(name, v); err != nil {
			return w, err
		}
	}
	open := req.Limits.TimeoutSeconds == 0 && (c.Default == nil || c.Default.Limits.TimeoutSeconds == 0)
	asked := req.TTLSeconds != 0 || c.Default != nil && c.Default.TTLSeconds != 0
	req, verdict := policy.Ceiling(req, c.Ceiling, c.Default)
	if err := verdict.Err(); err != nil {
		return w, err
	}
	if req.Limits, verdict = policy.Limits(req.Limits); !verdict.Allow {
		return w, verdict.Err()
	}
	if on != nil {
		w.image, w.resolved = *on, req.Template
	} else if err := e.template(c, &w, req.Template); err != nil {
		return w, err
	}
	most := 0.0
	if c.Ceiling != nil {
		most = c.Ceiling.TTLSeconds
	}
	e.times(&w, req, asked, most)
	if open && req.RunID == "" && e.opt.Journal != nil {
		w.execMost = api.Unlimited
		if c.Ceiling != nil && c.Ceiling.Limits.TimeoutSeconds > 0 {
			w.execMost = c.Ceiling.Limits.TimeoutSeconds
		}
	}
	if err := e.tree(c, &w, &req); err != nil {
		return w, err
	}
	if w.link != nil && w.resolved != image.Host {
		w.link.trust = e.opt.CA
	}
	req.Env = w.link.environment(req.Env, defaultPerson(w.image.Defaults))
	w.req = req
	return w, nil
}

// units merges PandaStack's names for limits into ours.
func units(req *api.CreateRequest) error {
	l := &req.Limits
	const mb, gb = 1 << 20, 1 << 30
	for _, f := range []struct {
		name, own string
		v, scale  float64
		have      float64
		set       func(float64)
	}{
		{"timeout_seconds", "limits.timeout_seconds", req.TimeoutSeconds, 1, l.TimeoutSeconds, func(v float64) { l.TimeoutSeconds = v }},
		{"cpu", "limits.cpus", req.CPU, 1, l.CPUs, func(v float64) { l.CPUs = v }},
		{"memory_mb", "limits.memory_bytes", req.MemoryMB, mb, float64(l.MemoryBytes), func(v float64) { l.MemoryBytes = int64(v) }},
		{"disk_gb", "limits.disk_bytes", req.DiskGB, gb, float64(l.DiskBytes), func(v float64) { l.DiskBytes = int64(v) }},
	} {
		if f.v == 0 {
			continue
		}
		v := f.v * f.scale
		if f.v < 0 || math.IsNaN(v) || v > 1<<50 {
			return badRequest("%s: %g is out of range", f.name, f.v)
		}
		if f.have != 0 && f.have != v {
			return badRequest("%s and %s are two names of one limit and say different things", f.name, f.own)
		}
		f.set(v)
	}
	return nil
}

// labels merges the two names of the tags, and the session with its tag.
func labels(req api.CreateRequest) (tags map[string]string, session string, err error) {
	tags = map[string]string{}
	maps.Copy(tags, req.Tags)
	for k, v := range req.Metadata {
		if have, ok := tags[k]; ok && have != v {
			return nil, "", badRequest("tags and metadata are two names of one map and differ in %.60q", k)
		}
		tags[k] = v
	}
	session = req.Session
	if tag := tags[tagSession]; session == "" {
		session = tag
	} else if tag != "" && tag != session {
		return nil, "", badRequest("session and the tag session differ")
	} else {
		tags[tagSession] = session
	}
	if v := policy.Tags(tags); !v.Allow {
		return nil, "", v.Err()
	}
	return tags, session, nil
}

// missing refuses what no part of Berm can do yet.
func missing(req api.CreateRequest) error {
	no := func(name, part string) error {
		return &api.Error{Code: api.CodeUnavailable, Message: name + ": this build has no " + part, Hint: "leave " + name + " out"}
	}
	if req.FromSnapshot != "" {
		return no("from_snapshot", "snapshots")
	}
	if policy.Present(req.Volumes) && string(req.Volumes) != "[]" {
		return no("volumes", "volumes")
	}
	return nil
}

// environment bounds the variables of a sandbox, as those of an exec are.
func environment(env map[string]string) error {
	size := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return badRequest("env: %.60q is not a variable", k)
		}
		size += len(k) + len(v)
	}
	if size > maxEnvBytes || len(env) > maxArgs/4 {
		return badRequest("env: longer than %d bytes, or more than %d variables", maxEnvBytes, maxArgs/4)
	}
	return nil
}

// timeOf refuses what is no time of a sandbox's life.
func timeOf(name string, v float64) error {
	if math.IsNaN(v) || v < 0 {
		return badRequest("%s: %g is no time", name, v)
	}
	if v > api.MaxTTLSeconds {
		e := badRequest("%s: %g is more than the %d that any sandbox may have", name, v, api.MaxTTLSeconds)
		e.Hint = fmt.Sprintf("ask for %s = %d at most", name, api.MaxTTLSeconds)
		return e
	}
	return nil
}

// template finds the image.
func (e *Engine) template(c Caller, w *wanted, name string) error {
	if name == "" {
		name = "host"
	}
	if !validName(name) {
		return &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("template %.60q is not a name", name)}
	}
	w.resolved = name
	var err error
	var ae *api.Error
	if w.image, err = e.opt.Images(name); errors.As(err, &ae) && ae.Code == api.CodeTemplateNotFound && aliases[name] != "" {
		w.resolved = aliases[name]
		w.image, err = e.opt.Images(w.resolved)
	}
	if err != nil {
		return err
	}
	return policy.Template(c.Ceiling, name, w.resolved).Err()
}

// tree lays an uploaded tree over the template. Its files are the agent's, so
// the template's own user is not who works on them; the guest's root can be.
func (e *Engine) tree(c Caller, w *wanted, req *api.CreateRequest) error {
	if req.Workspace == "" {
		return nil
	}
	gone := &api.Error{Code: api.CodeWorkspaceNotFound, Message: fmt.Sprintf("workspace %.60q is not kept, or no longer", req.Workspace), Hint: api.Hint(api.CodeWorkspaceNotFound)}
	if !api.ValidID(req.Workspace) {
		return gone
	}
	t, err := e.opt.Images(api.TreePrefix + c.Tenant + "/" + req.Workspace)
	var ae *api.Error
	if errors.As(err, &ae) && ae.Code == api.CodeTemplateNotFound {
		return gone
	}
	if err != nil {
		return err
	}
	w.image.Layers = slices.Concat(w.image.Layers, t.Layers)
	if n := len(w.image.Layers); n > image.MaxLayers {
		return &api.Error{Code: api.CodeWorkspaceTooLarge, Message: fmt.Sprintf("template and workspace have %d layers together, and at most %d can be stacked", n, image.MaxLayers),
			Hint: "upload the tree again, without a parent"}
	}
	d := &w.image.Defaults
	d.Workdir = ""
	if defaultPerson(*d).uid != 0 {
		d.User, d.UID, d.GID, d.Home = "", api.GuestUID, api.GuestGID, api.GuestHome
	}
	req.Track = true
	return nil
}

// sameName is Options.Images for engines without a store of images.
func sameName(template string) (image.Root, error) {
	if aliases[template] != "" {
		return image.Root{}, &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("template %q does not exist", template)}
	}
	return image.Root{Layers: []string{template}}, nil
}

// times settles what ends a sandbox by time. Without a journal, which is one
// run of one command line, nothing does that was not asked for; a run that
// says nothing has the time of its exec and what goes with it, at most what the
// caller's ceiling says (0: it says nothing).
func (e *Engine) times(w *wanted, req api.CreateRequest, asked bool, most float64) {
	durable := e.opt.Journal != nil
	w.persistent = req.Persistent
	w.ttl, w.idle = seconds(req.TTLSeconds), seconds(req.IdleTimeoutSeconds)
	if durable && !asked && req.RunID != "" {
		run := float64(api.MaxTTLSeconds)
		if req.Limits.TimeoutSeconds != api.Unlimited {
			run = min(run, req.Limits.TimeoutSeconds+DeadlineSlack.Seconds())
		}
		if most > 0 {
			run = min(run, most)
		}
		if w.ttl == 0 || seconds(run) < w.ttl { // a ceiling stays one
			w.ttl = seconds(run)
		}
	}
	if durable && w.ttl == 0 {
		w.ttl = api.DefaultTTLSeconds * time.Second
		if req.Persistent {
			w.ttl = api.PersistentTTL * time.Second
		}
	}
	if durable && w.idle == 0 {
		w.idle = api.DefaultIdleSeconds * time.Second
	}
}
