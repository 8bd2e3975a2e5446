package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const auditAbout = `
The audit log is a chain of hashes over every event. Whoever keeps a head
elsewhere can prove later that nothing up to it was changed, moved or cut:

  berm audit head > head.json               keep this somewhere else
  berm audit verify --head head.json        the daemon proves its log
  berm audit export -o log && berm audit verify --head head.json log
                                            this program does, without a daemon
`

func auditVerb() verb {
	return verb{
		name: "audit", summary: "read the audit log, and prove it", usage: "VERB [FLAG...]", about: auditAbout,
		subs: []verb{auditLs(), auditTail(), auditReport(), auditHead(), auditVerify(), auditExport()},
	}
}

func auditLs() verb {
	var q client.EventQuery
	var limit int64
	var asJSON bool
	fs := eventFlags(&q, &limit, &asJSON)
	return verb{
		name: "ls", summary: "list events, as berm events does", usage: "[FLAG...]", flags: func() flags { return fs },
		run: ask("audit ls", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			return a.events(ctx, q, limit, false, asJSON)
		}),
	}
}

func auditTail() verb {
	var q client.EventQuery
	last := int64(10)
	var asJSON bool
	fs := eventFlags(&q, &last, &asJSON)
	for i := range fs {
		if fs[i].name == "limit" {
			fs[i].name, fs[i].help = "last", "begin so many before the end (default: 10)"
		}
	}
	return verb{
		name: "tail", summary: "show the last events, and what comes", usage: "[FLAG...]", flags: func() flags { return fs },
		run: ask("audit tail", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			if q.After == 0 {
				h, err := a.AuditHead(ctx)
				if err != nil {
					return err
				}
				q.After = h.Seq - min(h.Seq, uint64(last))
			}
			return a.events(ctx, q, 0, true, asJSON)
		}),
	}
}

func auditReport() verb {
	var asJSON bool
	fs := flags{{name: "json", help: "print one JSON object", set: toggle(&asJSON)}}
	return verb{
		name: "report", summary: "say what a sandbox, a run or a session did", usage: "[--json] SANDBOX|RUN|SESSION", flags: func() flags { return fs },
		run: ask("audit report", fs, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			r, err := a.AuditReport(ctx, args[0])
			if id, ferr := a.everSandbox(ctx, args[0]); err != nil && ferr == nil && id != args[0] {
				r, err = a.AuditReport(ctx, id) // the start of an id
			}
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(r)
			}
			a.showReport(r)
			return nil
		}),
	}
}

func auditHead() verb {
	return verb{
		name: "head", summary: "print where the log ends, as JSON to keep elsewhere", usage: "", flags: func() flags { return nil },
		run: ask("audit head", nil, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			h, err := a.AuditHead(ctx)
			if err != nil {
				return err
			}
			return a.printed(h)
		}),
	}
}

func auditExport() verb {
	var out string
	fs := flags{{name: "output", short: "o", value: "FILE", help: "write it there (default: standard output)", set: text(&out)}}
	return verb{
		name: "export", summary: "copy the whole log", usage: "[-o FILE]", flags: func() flags { return fs },
		run: ask("audit export", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			if out == "" && isTerminal(a.Stdout) {
				return &fault{"audit export", "would write the whole log to your terminal", "berm audit export -o FILE"}
			}
			r, err := a.AuditExport(ctx)
			if err != nil {
				return err
			}
			defer r.Close()
			if out == "" {
				_, err = io.Copy(a.Stdout, r)
				return err
			}
			return newFile(out, r)
		}),
	}
}

// newFile makes a file of what r holds, for its owner alone, as writeWhole does.
func newFile(name string, r io.Reader) error {
	if err := writeWhole(name, r, 0o600); err != nil {
		return &fault{name, unwrapPath(err).Error(), ""}
	}
	return nil
}

const auditVerifyAbout = `
Exit code 0 if the log is whole, 1 if it is not. Without --head nobody can tell
whether its end was cut off: it then says "tail unproven". With FILE it looks at
an export, and asks no daemon.
`

func auditVerify() verb {
	var headFile string
	var asJSON bool
	fs := flags{
		{name: "head", value: "FILE", help: "a head that was kept elsewhere; - is standard input", set: text(&headFile)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "verify", summary: "prove that the log is what was written", usage: "[--head FILE] [--json] [FILE]", flags: func() flags { return fs }, about: auditVerifyAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			args, err := append(append(flags{}, fs...), globalFlags(env)...).among(args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"audit", "verify"})
			}
			if err == nil {
				err = argCount("audit verify", args, 0, 1)
			}
			var head *api.Head
			if err == nil && headFile != "" {
				head, err = readHead(headFile, env.Stdin)
			}
			if err != nil {
				return env.fail(err)
			}
			show := func(v api.Verification) int {
				code := exitOK
				if !v.OK {
					code = 1
				}
				if asJSON {
					return max(code, env.print(v))
				}
				env.showVerification(v)
				return code
			}
			if len(args) == 1 {
				v, err := verifyFile(args[0], head)
				if err != nil {
					return env.fail(err)
				}
				return show(v)
			}
			return env.asked(ctx, func(ctx context.Context, a *asker) error {
				v, err := a.AuditVerify(ctx, head)
				if err != nil {
					return err
				}
				return exitCode(show(v))
			})
		},
	}
}

func readHead(name string, stdin io.Reader) (*api.Head, error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &fault{name, unwrapPath(err).Error(), "berm audit head > FILE"}
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, 64<<10))
	if err != nil {
		return nil, &fault{name, unwrapPath(err).Error(), ""}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	h := &api.Head{}
	if err := d.Decode(h); err != nil || h.Hash == "" {
		return nil, &fault{name, "is not a head of an audit log", "berm audit head > FILE"}
	}
	return h, nil
}

func (env *Env) showVerification(v api.Verification) {
	word := "whole"
	if !v.OK {
		word = fmt.Sprintf("NOT WHOLE at seq %d: %s", v.AtSeq, v.Problem)
	} else if v.TailUnproven {
		word = "whole as far as it goes; tail unproven (no head that was kept covers its end)"
	}
	env.facts([][2]string{
		{"log", word}, {"events", fmt.Sprintf("%d, seq %d to %d", v.Records, v.FirstSeq, v.LastSeq)},
		{"segments", fmt.Sprintf("%d, %d of them sealed", v.Segments, v.Sealed)},
	})
}
