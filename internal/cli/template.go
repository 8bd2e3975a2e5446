package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const templateAbout = `
What sandboxes start from. There is always host, made from the tools of this
machine; others are pulled, imported or built, and kept until they are removed.
The parts that templates share are kept once. A name may stand for another, as
base does for host until there is a base.

These verbs ask the daemon that is running, and work without one; there they are
for whoever may write the state directory. To make and remove takes a token with
the role operator.

  berm template build code-interpreter      Python, Node, git and build tools
  berm template pull python:3.12-slim       an image of a registry
  berm template import rootfs.tar.gz mine   an archive, or a directory
  berm template build web -f Dockerfile     step by step, each in a sandbox
  berm run --template mine -- ls /
`

func templateVerb() verb {
	return verb{
		name: "template", summary: "make, list and remove what sandboxes start from", usage: "VERB [FLAG...]", about: templateAbout,
		subs: []verb{templateLsVerb(), templateInfoVerb(), templateRmVerb(), templatePullVerb(), templateBuildVerb(), templateImportVerb(), templateExportVerb(), templateBuildsVerb()},
	}
}

// shelf makes a verb's run, for verbs about templates: they ask a daemon if one
// is running, and else what they start themselves. link says that it may have
// to reach something.
func shelf(name string, fs flags, least, most int, link bool, do func(ctx context.Context, a *asker, args []string) error) func(context.Context, *Env, []string) int {
	name = "template " + name
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
		ctx, in := env.interruptible(ctx, func() {}, goneAfter)
		defer in.stop()
		err = env.shelved(ctx, link, func(a *asker) error { return do(ctx, a, args) })
		var code exitCode
		switch {
		case err == nil:
			return exitOK
		case errors.As(err, &code):
			return int(code)
		case context.Cause(ctx) == errInterrupted:
			return env.fail(&api.Error{Code: api.CodeInterrupted, Message: name + ": interrupted, and nothing of it is left"})
		}
		return env.fail(err)
	}
}

// shelved opens a session for templates, does it, and closes it.
func (env *Env) shelved(ctx context.Context, link bool, do func(*asker) error) error {
	var s *Session
	var none *client.NoDaemon
	err := error(&client.NoDaemon{})
	if env.Connect != nil {
		s, err = env.connect(ctx)
	}
	if errors.As(err, &none) && env.Open != nil {
		s, err = env.Open(ctx, OpenOptions{StateDir: env.StateDir, NoTemplate: true, Templates: true, Link: link})
	}
	if err != nil {
		return err
	}
	defer s.Close()
	return do(&asker{env, s.Client})
}

func templateLsVerb() verb {
	var asJSON, quiet bool
	fs := flags{
		{name: "quiet", short: "q", help: "print names only", set: toggle(&quiet)},
		{name: "json", help: "print one JSON array", set: toggle(&asJSON)},
	}
	return verb{
		name: "ls", summary: "list templates", usage: "[FLAG...]", flags: func() flags { return fs },
		run: shelf("ls", fs, 0, 0, false, func(ctx context.Context, a *asker, _ []string) error {
			list, err := a.Templates(ctx)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return a.printed(nonNil(list))
			case quiet:
				for _, x := range list {
					fmt.Fprintln(a.Stdout, shownName(x.Name))
				}
				return nil
			}
			t := newTable(a.Stdout, "NAME", "FROM", "SIZE", "USER", "AGE")
			for _, x := range list {
				from, size := x.Source, bytesText(x.SizeBytes)
				if x.Resolved != "" {
					from, size = "is "+x.Resolved, ""
				}
				t.row(x.Name, clipped(from, 60), size, cmp.Or(x.Config.User, api.GuestUser), since(x.CreatedAt))
			}
			t.end()
			return nil
		}),
	}
}

// clipped is the start of a long text.
func clipped(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

func templateInfoVerb() verb {
	var asJSON bool
	fs := flags{{name: "json", help: "print the template as one JSON object", set: toggle(&asJSON)}}
	return verb{
		name: "info", summary: "say what a template is made of", usage: "[--json] NAME", flags: func() flags { return fs },
		run: shelf("info", fs, 1, 1, false, func(ctx context.Context, a *asker, args []string) error {
			x, err := a.Template(ctx, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(x)
			}
			a.describe(x)
			return nil
		}),
	}
}

func (a *asker) describe(x api.Template) {
	root := ""
	if x.Root {
		root = "commands may be root, inside"
	}
	for _, l := range [][2]string{
		{"template", x.Name}, {"is", x.Resolved}, {"from", x.Source}, {"digest", x.Digest}, {"platform", x.Platform}, {"size", bytesText(x.SizeBytes)},
		{"made", x.CreatedAt}, {"user", cmp.Or(x.Config.User, api.GuestUser)}, {"root", root}, {"workdir", x.Config.Workdir},
		{"entrypoint", shellLine(x.Config.Entrypoint)}, {"command", shellLine(x.Config.Cmd)},
	} {
		if l[1] != "" {
			fmt.Fprintf(a.Stdout, "%-11s %s\n", l[0], shownName(l[1]))
		}
	}
	for _, kv := range x.Config.Env {
		fmt.Fprintf(a.Stdout, "%-11s %s\n", "env", shownName(kv))
	}
	for _, l := range x.Layers {
		fmt.Fprintf(a.Stdout, "%-11s %s  %s\n", "layer", shownName(l.Name), bytesText(l.SizeBytes))
	}
	for _, n := range x.Notes {
		fmt.Fprintf(a.Stdout, "%-11s %s\n", "note", shownName(n))
	}
}

func templateRmVerb() verb {
	return verb{
		name: "rm", summary: "remove templates, with the parts that no other one uses", usage: "NAME...",
		about: "Sandboxes that run from one go on. host is made again when it is needed.",
		run: shelf("rm", nil, 1, -1, false, func(ctx context.Context, a *asker, names []string) error {
			failed := false
			for _, name := range names {
				if err := a.RemoveTemplate(ctx, name); err != nil {
					if ctx.Err() != nil || len(names) == 1 {
						return err
					}
					a.explain(err)
					failed = true
				}
			}
			if failed {
				return exitCode(exitRefused)
			}
			return nil
		}),
	}
}

const exportAbout = `
Without FILE the archive goes to standard output. oci is an OCI layout, docker what
docker load takes, tar the plain files of the template, all in one. berm template
import takes each of them back.

  berm template export mine mine.tar
  berm template export mine --format docker | docker load
`

func templateExportVerb() verb {
	var file, format string
	fs := flags{
		{name: "output", short: "o", value: "FILE", help: "where it goes, as FILE does (default: standard output)", set: text(&file)},
		{name: "format", value: "FORMAT", help: "oci, docker or tar (default: oci)", set: oneOfFew(&format, "oci", "docker", "tar")},
	}
	return verb{
		name: "export", summary: "write a template as an archive", usage: "[FLAG...] NAME [FILE]", flags: func() flags { return fs }, about: exportAbout,
		run: shelf("export", fs, 1, 2, false, func(ctx context.Context, a *asker, args []string) error {
			if len(args) > 1 && file != "" {
				return &fault{"template export", "has two files to write to", "berm template export " + shellLine(args[:1]) + " -o " + shellLine([]string{file})}
			}
			if len(args) > 1 {
				file, args = args[1], args[:1]
			}
			if file == "" && isTerminal(a.Stdout) {
				return &fault{"template export", "standard output is a terminal", "berm template export " + shellLine(args) + " -o FILE"}
			}
			if _, err := a.Template(ctx, args[0]); err != nil { // before a file is begun
				return err
			}
			r, err := a.ExportTemplate(ctx, args[0], format)
			if err != nil {
				return err
			}
			defer r.Close()
			t := a.teller()
			defer t.end()
			in := &counting{r: r, tell: func(n int64) { t.tell(api.TemplateProgress{Phase: "export", Done: n}) }}
			if file == "" || file == "-" {
				_, err = io.Copy(a.Stdout, in)
			} else {
				err = writeWhole(file, in, 0o644)
			}
			if err != nil && ctx.Err() == nil {
				var ae *api.Error
				if !errors.As(err, &ae) {
					err = &fault{"template export", err.Error(), "berm template info " + shellLine(args)}
				}
			}
			return err
		}),
	}
}

// writeWhole writes a file that is there whole or not at all. What is there and is
// no plain file, as /dev/stdout, is written to and never replaced.
func writeWhole(name string, r io.Reader, mode os.FileMode) (err error) {
	if fi, err := os.Stat(name); err == nil && !fi.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".berm-*")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = io.Copy(f, r); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// oneOfFew is a setter of one of few words.
func oneOfFew(p *string, of ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(of, s) {
			return fmt.Errorf("is not one of %s", strings.Join(of, ", "))
		}
		*p = s
		return nil
	}
}

// counting tells how much was read.
type counting struct {
	r    io.Reader
	n    int64
	tell func(n int64)
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.tell(c.n)
	return n, err
}

// madeIt says what a template that was made is called and what it weighs.
func (a *asker) madeIt(x api.Template, asJSON bool) error {
	for i, n := range x.Notes {
		if i == 10 {
			a.note("%s has more of these notes: berm template info %s", x.Name, shellLine([]string{x.Name}))
			break
		}
		a.note("%s", n)
	}
	if asJSON {
		return a.printed(x)
	}
	fmt.Fprintln(a.Stdout, shownName(x.Name))
	return nil
}

func templateBuildsVerb() verb {
	var asJSON bool
	fs := flags{{name: "json", help: "print one JSON array", set: toggle(&asJSON)}}
	return verb{
		name: "builds", summary: "list the builds and pulls of a daemon, the newest first", usage: "[--json]", flags: func() flags { return fs },
		run: ask("template builds", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			list, err := a.Builds(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(nonNil(list))
			}
			t := newTable(a.Stdout, "BUILD", "TEMPLATE", "STATE", "AGE", "WHY")
			for _, b := range list {
				t.row(short(b.ID), b.Name, b.Status, since(b.StartedAt), clipped(b.Error, 80))
			}
			t.end()
			return nil
		}),
	}
}
