package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// daemonVerbs lists the verbs that ask a daemon, and the daemon itself.
func daemonVerbs() []verb {
	return []verb{
		serveVerb(), createVerb(), lsVerb(), infoVerb(), execVerb(), shellVerb(), psVerb(), attachVerb(),
		cpVerb(), fsVerb(), logsVerb(), killVerb(), pauseVerb(), resumeVerb(), ttlVerb(), tagVerb(), egressVerb(), portVerb(),
		topVerb(), eventsVerb(), auditVerb(), tokenVerb(), templateVerb(),
	}
}

// An exitCode ends a verb that has said all there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// An asker is what a verb that asks a daemon works with.
type asker struct {
	*Env
	*client.Client
}

// ask makes a verb's run out of what it does between connecting and leaving.
// most below 0 is any number of arguments; flags may stand among them.
func ask(name string, fs flags, least, most int, do func(ctx context.Context, a *asker, args []string) error) func(context.Context, *Env, []string) int {
	return func(ctx context.Context, env *Env, args []string) int {
		args, err := append(slices.Clone(fs), globalFlags(env)...).among(args)
		if err == errHelp {
			return help(env, env.Stdout, strings.Fields(name))
		}
		if err == nil {
			err = argCount(name, args, least, most)
		}
		if err != nil {
			return env.fail(err)
		}
		return env.asked(ctx, func(ctx context.Context, a *asker) error { return do(ctx, a, args) })
	}
}

func argCount(name string, args []string, least, most int) error {
	switch {
	case len(args) < least:
		return &fault{name, "needs " + counted(least, "argument") + " at least", "berm help " + name}
	case most == 0 && len(args) > 0:
		return &fault{name, "takes no arguments", "berm help " + name}
	case most > 0 && len(args) > most:
		return &fault{name, "takes " + counted(most, "argument") + " at most", "berm help " + name}
	}
	return nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// asked connects, does it, and returns the exit code.
func (env *Env) asked(ctx context.Context, do func(context.Context, *asker) error) int {
	s, err := env.connect(ctx)
	if err != nil {
		return env.fail(err)
	}
	defer s.Close()
	err = do(ctx, &asker{env, s.Client})
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	return env.fail(err)
}

// connect is Env.Connect, with its errors for people.
func (env *Env) connect(ctx context.Context) (*Session, error) {
	if env.Connect == nil {
		return nil, &fault{"daemon", "this build cannot ask one", "berm version"}
	}
	s, err := env.Connect(ctx, ConnectOptions{URL: env.URL, TokenFile: env.TokenFile, StateDir: env.StateDir})
	var none *client.NoDaemon
	if errors.As(err, &none) {
		return nil, noDaemon{&fault{"daemon", none.Error(), "berm serve"}, none}
	}
	return s, err
}

// noDaemon is a fault that still is what it was.
type noDaemon struct {
	*fault
	was *client.NoDaemon
}

func (n noDaemon) Unwrap() []error { return []error{n.fault, n.was} }

// among takes flags from anywhere among args, up to `--`.
func (fs flags) among(args []string) (rest []string, err error) {
	for {
		more, dashes, err := fs.parse(args)
		if err != nil {
			return nil, err
		}
		if dashes || len(more) == 0 {
			return append(rest, more...), nil
		}
		rest, args = append(rest, more[0]), more[1:]
	}
}

// sandbox is the id that an argument means: itself, or the one id that it starts.
func (a *asker) sandbox(ctx context.Context, arg string) (string, error) {
	return a.sandboxAmong(ctx, arg, client.Filter{})
}

// everSandbox is the same, of sandboxes that have ended too.
func (a *asker) everSandbox(ctx context.Context, arg string) (string, error) {
	return a.sandboxAmong(ctx, arg, client.Filter{Ended: true})
}

func (a *asker) sandboxAmong(ctx context.Context, arg string, f client.Filter) (string, error) {
	if api.ValidID(arg) {
		return arg, nil
	}
	if !idLike(arg) {
		return "", &fault{shellLine([]string{arg}), "is not the id of a sandbox, nor the start of one", "berm ls"}
	}
	list, err := a.Sandboxes(ctx, f)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, sb := range list {
		ids = append(ids, sb.SandboxID)
	}
	return oneOf(arg, "sandbox", ids, "berm ls")
}

// oneOf is the one id that starts with prefix.
func oneOf(prefix, kind string, ids []string, try string) (string, error) {
	var found []string
	for _, id := range ids {
		if strings.HasPrefix(id, prefix) && api.ValidID(id) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", &fault{prefix, "is no " + kind, try}
	case 1:
		return found[0], nil
	}
	return "", &fault{prefix, fmt.Sprintf("could be any of %d: %s", len(found), strings.Join(found[:min(len(found), 4)], " ")), "more of the id"}
}

// idLike says whether an argument could be an id or the start of one.
func idLike(s string) bool {
	return s != "" && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// execLike says whether an argument is the id of a command rather than of a
// sandbox, by its first letter.
func execLike(s string) bool { return idLike(s) && s[0] == api.KindExec }

// exec finds a command by its id or the start of it: in one sandbox, or, if
// sandbox is "", wherever it is.
func (a *asker) exec(ctx context.Context, sandbox, arg string) (id, exec string, err error) {
	if !idLike(arg) {
		return "", "", &fault{shellLine([]string{arg}), "is not the id of a command", "berm ps"}
	}
	if sandbox != "" {
		if id, err = a.sandbox(ctx, sandbox); err != nil || api.ValidID(arg) {
			return id, arg, err
		}
	}
	list, err := a.execs(ctx, id)
	if err != nil {
		return "", "", err
	}
	var ids []string
	at := map[string]string{}
	for _, x := range list {
		ids = append(ids, x.ExecID)
		at[x.ExecID] = x.SandboxID
	}
	exec, err = oneOf(arg, "command that is known", ids, "berm ps")
	if id == "" {
		id = at[exec]
	}
	return id, exec, err
}

// execs lists the commands of one sandbox, or of all.
func (a *asker) execs(ctx context.Context, id string) ([]api.Exec, error) {
	ids := []string{id}
	if id == "" {
		list, err := a.Sandboxes(ctx, client.Filter{})
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, sb := range list {
			ids = append(ids, sb.SandboxID)
		}
	}
	all := []api.Exec{}
	for _, one := range ids {
		xs, err := a.Execs(ctx, one)
		var ae *api.Error
		if id == "" && errors.As(err, &ae) && (ae.Code == api.CodeSandboxEnded || ae.Code == api.CodeSandboxNotFound) {
			continue // ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		for i := range xs {
			xs[i].SandboxID = one
		}
		all = append(all, xs...)
	}
	return all, nil
}
