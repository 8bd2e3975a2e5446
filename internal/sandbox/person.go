package sandbox

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/image"
)

// A person is who a command runs as.
type person struct {
	uid, gid uint32
	name     string // "": it has none that is known
	home     string
}

const rootUser = "root"

// Who works in a sandbox whose template says nothing, and the guest's root.
var (
	agentPerson = person{api.GuestUID, api.GuestGID, api.GuestUser, api.GuestHome}
	rootPerson  = person{0, 0, rootUser, "/root"}
)

// defaultPerson is who runs commands that name nobody. Root is only that where
// the template grants it; defaults that say nothing mean the agent.
func defaultPerson(d image.Defaults) person {
	name, _, _ := strings.Cut(d.User, ":")
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		name = ""
	}
	a := person{d.UID, d.GID, name, d.Home}
	switch {
	case d.UID == 0 && !d.Root:
		return agentPerson
	case d.UID == 0:
		a.name = rootUser
		if a.home == "" {
			a.home = rootPerson.home
		}
	case d.UID == api.GuestUID && name == "":
		a.name = api.GuestUser
	}
	if a.home == "" {
		a.home = "/"
		if d.UID == api.GuestUID {
			a.home = api.GuestHome
		}
	}
	return a
}

// person is who a request means.
func (b *box) person(user string) (person, error) {
	d := b.defaults
	own := defaultPerson(d)
	name, _, _ := strings.Cut(d.User, ":")
	switch user {
	case "":
		return own, nil
	case api.GuestUser:
		return agentPerson, nil
	case rootUser, "0":
		if !d.Root {
			return own, &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("user: template %.60q does not grant root", b.public.TemplateResolved),
				Hint: "leave user out; or make the template with root inside: berm template pull, import or build with --user root"}
		}
		if own.uid == 0 {
			return own, nil
		}
		return rootPerson, nil
	case own.name, name, strconv.FormatUint(uint64(own.uid), 10):
		return own, nil
	}
	return own, badRequest("user: %.60q is none of agent, root, and the template's own", user)
}

// environ is what a command of a finds before the sandbox and the request say
// anything: what every command finds, and above it the template's.
func environ(d image.Defaults, a person) map[string]string {
	env := make(map[string]string, len(baseEnv)+len(d.Env)+4)
	for k, v := range baseEnv {
		env[k] = v
	}
	env["HOME"] = a.home
	if env["USER"] = a.name; a.name == "" {
		delete(env, "USER")
	}
	for _, e := range d.Env {
		if k, v, ok := strings.Cut(e, "="); ok && k != "" && !strings.ContainsRune(e, 0) {
			env[k] = v
		}
	}
	return env
}

// workdir is where commands run that name no directory.
func workdir(d image.Defaults) string {
	if !path.IsAbs(d.Workdir) || len(d.Workdir) > maxPath || strings.ContainsRune(d.Workdir, 0) {
		return api.Workspace
	}
	return path.Clean(d.Workdir)
}

// unlike says what a guest's fixed places lack for its defaults: the directory
// that commands run in, and a /workspace of their user's.
func (b *box) unlike() (mkdir string, own bool) {
	if dir := workdir(b.defaults); dir != "/" && dir != api.Workspace {
		mkdir = dir
	}
	a := defaultPerson(b.defaults)
	return mkdir, a.uid != 0 && a.uid != api.GuestUID
}

// settle makes that good.
func (e *Engine) settle(b *box) error {
	mkdir, own := b.unlike()
	a := defaultPerson(b.defaults)
	for dir, do := range map[string]func(*guest.Client, string) error{
		mkdir: func(g *guest.Client, dir string) error {
			ctx, cancel := e.listing()
			defer cancel()
			return g.Mkdir(ctx, dir, 0o755, a.uid, a.gid)
		},
		api.Workspace: func(g *guest.Client, dir string) error {
			if !own {
				return nil
			}
			ctx, cancel := e.listing()
			defer cancel()
			return g.Own(ctx, dir, 0o755, a.uid, a.gid)
		},
	} {
		if dir == "" {
			continue
		}
		if err := do(b.guest, dir); err != nil {
			return &api.Error{Code: api.CodeTemplateInvalid, Message: fmt.Sprintf("template: %.200s cannot be made ready for its user: %s", dir, clip(err.Error(), 300)),
				Hint: "give the template another workdir or user"}
		}
	}
	return nil
}
