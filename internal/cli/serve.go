package cli

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
)

const serveAbout = `
The daemon: it keeps sandboxes for many clients, over HTTP. It listens on
127.0.0.1:7070 and on the socket DIR/berm.sock, which only its user may open. When
it can be asked it prints "berm: ready URL" and writes DIR/url; its first start
makes an admin token in DIR/token. Nothing but /healthz is open without a token.

Started as root, only the keeper of the sandboxes stays root. SIGTERM and Ctrl-C
let open calls end (10 s) and then end every sandbox, unless a keeper of its own
keeps them, as with the units in deploy/systemd. After a kill -9 the sandboxes go
on, with their deadlines, and the next berm serve takes them over. FILE is YAML or
JSON; keys that are not known are refused.

  berm serve
  berm serve --listen 0.0.0.0:7443 --tls-cert cert.pem --tls-key key.pem --host berm.example.org
`

func serveVerb() verb {
	var o ServeOptions
	fs := flags{
		{name: "listen", value: "HOST:PORT", help: "where to listen (default: 127.0.0.1:7070; port 0 picks one; none: the socket only; repeat)", set: func(s string) error {
			o.Listen = append(o.Listen, s)
			return checkListen(s)
		}},
		{name: "config", value: "FILE", help: "quotas, retention, alerts and the rest", set: text(&o.Config)},
		{name: "tls-cert", value: "FILE", help: "certificate to show, with --tls-key", set: text(&o.TLSCert)},
		{name: "tls-key", value: "FILE", help: "its key", set: text(&o.TLSKey)},
		{name: "host", value: "NAME", help: "a name by which clients call it, beside those of this host's loopback (repeat)", set: more(&o.Hosts)},
		{name: "debug", help: "log more", set: toggle(&o.Debug)},
	}
	return verb{
		name: "serve", own: true, summary: "be the daemon that keeps sandboxes for many clients", usage: "[FLAG...]", flags: func() flags { return fs }, about: serveAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			args, err := append(slices.Clone(fs), globalFlags(env)...).among(args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"serve"})
			}
			if err == nil {
				err = argCount("serve", args, 0, 0)
			}
			if err == nil {
				err = o.check(env)
			}
			if err == nil && env.Serve == nil {
				err = &fault{"serve", "this build has no daemon in it", "berm version"}
			}
			if err == nil {
				o.StateDir = env.StateDir
				err = env.Serve(ctx, o)
			}
			if err != nil {
				return env.fail(err)
			}
			return exitOK
		},
	}
}

func checkListen(s string) error {
	if s == "none" {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("is not HOST:PORT, as in 127.0.0.1:7070")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("has no port that is a number, as in 127.0.0.1:7070")
	}
	if host == "" {
		return &fault{"--listen " + s, "would listen everywhere without saying so", "--listen 0.0.0.0" + s}
	}
	return nil
}

// check refuses flags that cannot go together.
func (o *ServeOptions) check(env *Env) error {
	switch {
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return &fault{"serve", "--tls-cert and --tls-key go together", "berm help serve"}
	case slices.Contains(o.Listen, "none") && len(o.Listen) > 1:
		return &fault{"--listen none", "stands beside others", "berm help serve"}
	case env.URL != "" || env.TokenFile != "":
		return &fault{"serve", "--url and --token-file are for those who ask a daemon", "berm help serve"}
	}
	return nil
}
