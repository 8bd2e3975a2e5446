package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/bermhq/berm/api"
)

const fsAbout = `
A relative PATH is below /workspace. Names are shown on one line each, with what a
terminal could obey written out; --json has them as they are. berm cp copies.

  berm fs ls $SB:
  berm fs cat $SB:result.json | jq .
  berm fs watch -r $SB:/tmp
`

func fsVerb() verb {
	return verb{
		name: "fs", summary: "look at the files of a sandbox, and change them", usage: "VERB [FLAG...] SANDBOX:PATH", about: fsAbout,
		subs: []verb{fsLs(), fsCat(), fsStat(), fsRm(), fsMkdir(), fsMv(), fsWatch()},
	}
}

// inside finds the sandbox of a place.
func (a *asker) inside(ctx context.Context, arg string, bare bool) (id, path string, err error) {
	p, err := parseInside(arg, bare)
	if err != nil {
		return "", "", err
	}
	id, err = a.sandbox(ctx, p.sandbox)
	return id, p.path, err
}

func fsLs() verb {
	var asJSON, long bool
	f := flags{
		{name: "long", short: "l", help: "with mode, size and time", set: toggle(&long)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "ls", summary: "list a folder", usage: "[FLAG...] SANDBOX[:PATH]", flags: func() flags { return f },
		run: ask("fs ls", f, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			id, path, err := a.inside(ctx, args[0], true)
			if err != nil {
				return err
			}
			l, err := a.ListDir(ctx, id, path)
			if err != nil {
				return err
			}
			l.Entries = nonNil(l.Entries)
			if asJSON {
				return a.printed(l)
			}
			if long {
				t := newTable(a.Stdout, "MODE", "SIZE", "TIME", "NAME")
				for _, e := range l.Entries {
					t.row(modeText(e), bytesText(e.Size), timeOf(e.MTime), e.Name)
				}
				t.end()
			}
			for _, e := range l.Entries {
				if long {
					break
				}
				name := shownName(e.Name)
				if e.IsDir {
					name += "/"
				}
				fmt.Fprintln(a.Stdout, name)
			}
			if l.More {
				a.note("the list was cut at %d entries", len(l.Entries))
			}
			return nil
		}),
	}
}

func modeText(e api.DirEntry) string {
	m := fs.FileMode(e.Perm) & fs.ModePerm
	switch e.Kind {
	case "dir":
		m |= fs.ModeDir
	case "symlink":
		m |= fs.ModeSymlink
	case "other":
		m |= fs.ModeIrregular
	}
	return m.String()
}

func timeOf(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

func fsCat() verb {
	return verb{
		name: "cat", summary: "print files", usage: "SANDBOX:PATH...", flags: func() flags { return nil },
		run: ask("fs cat", nil, 1, -1, func(ctx context.Context, a *asker, args []string) error {
			for _, arg := range args {
				id, path, err := a.inside(ctx, arg, false)
				if err == nil {
					err = a.cat(ctx, id, path)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func fsStat() verb {
	var asJSON bool
	f := flags{{name: "json", help: "print one JSON object", set: toggle(&asJSON)}}
	return verb{
		name: "stat", summary: "say what a file is", usage: "[--json] SANDBOX:PATH", flags: func() flags { return f },
		run: ask("fs stat", f, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			id, path, err := a.inside(ctx, args[0], true)
			if err != nil {
				return err
			}
			e, err := a.Stat(ctx, id, path)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(e)
			}
			a.facts([][2]string{{"path", e.Path}, {"kind", e.Kind}, {"mode", modeText(e)}, {"bytes", fmt.Sprint(e.Size)}, {"changed", timeOf(e.MTime)}})
			return nil
		}),
	}
}

func fsRm() verb {
	var recursive, force bool
	f := flags{
		{name: "recursive", short: "r", help: "folders too, with all that is in them", set: toggle(&recursive)},
		{name: "force", short: "f", help: "what is not there is no error", set: toggle(&force)},
	}
	return verb{
		name: "rm", summary: "remove files", usage: "[FLAG...] SANDBOX:PATH...", flags: func() flags { return f },
		run: ask("fs rm", f, 1, -1, func(ctx context.Context, a *asker, args []string) error {
			for _, arg := range args {
				id, path, err := a.inside(ctx, arg, false)
				if err != nil {
					return err
				}
				e, err := a.Stat(ctx, id, path)
				if force && missing(err) {
					continue
				}
				if err == nil && e.IsDir && !recursive {
					err = &fault{path, "is a folder", "berm fs rm -r " + shellLine([]string{arg})}
				}
				if err == nil {
					err = a.Remove(ctx, id, path)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func fsMkdir() verb {
	return verb{
		name: "mkdir", summary: "make folders, and those above them", usage: "SANDBOX:PATH...", flags: func() flags { return nil },
		run: ask("fs mkdir", nil, 1, -1, func(ctx context.Context, a *asker, args []string) error {
			for _, arg := range args {
				id, path, err := a.inside(ctx, arg, false)
				if err == nil {
					err = a.Mkdir(ctx, id, path)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func fsMv() verb {
	return verb{
		name: "mv", summary: "rename a file or folder", usage: "SANDBOX:PATH PATH", flags: func() flags { return nil },
		run: ask("fs mv", nil, 2, 2, func(ctx context.Context, a *asker, args []string) error {
			from, err := parseInside(args[0], false)
			if err != nil {
				return err
			}
			to, err := parsePlace(args[1])
			if err == nil && to.sandbox == "" {
				to.path, err = insidePath(args[1])
			} else if err == nil && to.sandbox != from.sandbox {
				err = &fault{args[1], "is in another sandbox", "berm cp"}
			}
			if err != nil {
				return err
			}
			id, err := a.sandbox(ctx, from.sandbox)
			if err != nil {
				return err
			}
			return a.Move(ctx, id, from.path, to.path)
		}),
	}
}

func fsWatch() verb {
	var asJSON, recursive bool
	f := flags{
		{name: "recursive", short: "r", help: "what lies below it too", set: toggle(&recursive)},
		{name: "json", help: "print one JSON object a line", set: toggle(&asJSON)},
	}
	return verb{
		name: "watch", summary: "say what changes in a folder, until you leave", usage: "[FLAG...] SANDBOX[:PATH]", flags: func() flags { return f },
		run: ask("fs watch", f, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			id, path, err := a.inside(ctx, args[0], true)
			if err != nil {
				return err
			}
			ctx, in := a.interruptible(ctx, func() {}, time.Second)
			defer in.stop()
			err = a.Watch(ctx, id, path, recursive, nil, func(e api.FileEvent) error {
				if asJSON {
					return a.printed(e)
				}
				_, err := fmt.Fprintf(a.Stdout, "%s %s\n", shownName(e.Op), shownName(e.Path))
				return err
			})
			return left(ctx, err)
		}),
	}
}

// left is err, unless it is only that the user left.
func left(ctx context.Context, err error) error {
	if context.Cause(ctx) == errInterrupted {
		return exitCode(130)
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// missing says whether an error is that a file is not there.
func missing(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeFileNotFound
}
