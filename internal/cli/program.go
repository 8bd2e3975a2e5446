package cli

import (
	"bytes"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bermhq/berm/api"
)

// maxCode bounds code from standard input.
const maxCode = 16 << 20

// program turns the arguments into steps, and adds what they need to the files
// that are copied in. Nothing is executed and nothing is opened but the file.
func (o *runOptions) program(rest []string, dashes bool, stdin io.Reader) ([]step, error) {
	steps, err := o.offline(rest, dashes, stdin)
	if o.wire.asked() {
		for _, s := range steps {
			delete(s.env, "GOPROXY")
		}
	}
	return steps, err
}

// offline is program for a sandbox that reaches nothing.
func (o *runOptions) offline(rest []string, dashes bool, stdin io.Reader) ([]step, error) {
	switch {
	case o.hasCode:
		if o.lang == "" {
			return nil, &fault{"--code", "does not say its language", "berm run --lang python --code " + shellLine([]string{o.code})}
		}
		return o.inline([]byte(o.code), rest)
	case dashes:
		if len(rest) == 0 || rest[0] == "" {
			return nil, &fault{"run", "no command after --", "berm run -- echo hello"}
		}
		if o.lang != "" {
			return nil, &fault{"--lang " + o.lang, "has no meaning for a command after --", "berm run " + shellLine(rest[:1])}
		}
		return []step{{args: rest}}, nil
	case len(rest) == 0:
		return nil, &fault{"run", "no file, no --code and no command given", "berm help run"}
	case rest[0] == "-":
		if o.stdin || o.tty {
			return nil, &fault{"run -", "standard input is already the code, so the program cannot read it too", "berm run --stdin FILE"}
		}
		code, err := io.ReadAll(io.LimitReader(stdin, maxCode+1))
		if err != nil {
			return nil, &fault{"standard input", err.Error(), ""}
		}
		if len(code) > maxCode {
			return nil, &fault{"standard input", "is more than 16m of code", "berm run FILE"}
		}
		if o.lang == "" {
			if _, ok := shebang(code); !ok {
				return nil, &fault{"run -", "the code has no #! line, so its language is not known", "berm run --lang python -"}
			}
		}
		return o.inline(code, rest[1:])
	}
	return o.file(rest[0], rest[1:])
}

// inline runs code that has no file of its own.
func (o *runOptions) inline(code []byte, args []string) ([]step, error) {
	if o.lang == "" {
		inside := api.Workspace + "/" + o.here.codeName("main")
		o.in = append(o.in, copyIn{dest: inside, data: code, mode: 0o755})
		return langOf("main", code[:min(len(code), 512)], inside, args)
	}
	l, err := langByName(o.lang)
	if err != nil {
		return nil, err
	}
	inside := api.Workspace + "/" + o.here.codeName(l.main)
	o.in = append(o.in, copyIn{dest: inside, data: code, mode: 0o644})
	return l.steps(inside, args), nil
}

// file runs a file of this host.
func (o *runOptions) file(name string, args []string) ([]step, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is refused, not waited for
	if err != nil {
		fl := &fault{name, unwrapPath(err).Error(), ""}
		if !strings.Contains(name, "/") {
			fl.try = "berm run -- " + shellLine(append([]string{name}, args...))
		}
		return nil, fl
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		fl := &fault{name, "is not a regular file", "berm run --in DIR FILE"}
		if err == nil && fi.Mode()&os.ModeNamedPipe != 0 {
			fl.try = "berm run --lang NAME - < " + shellLine([]string{name})
		}
		return nil, fl
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, &fault{name, unwrapPath(err).Error(), ""}
	}
	head = head[:n]
	inside := path.Join(api.Workspace, filepath.Base(name))
	if rel, ok := o.here.inTree(name); ok { // it goes in with the tree
		inside = path.Join(api.Workspace, rel)
	} else {
		o.in = append(o.in, copyIn{local: name, dest: inside})
	}
	if o.lang != "" {
		l, err := langByName(o.lang)
		if err != nil {
			return nil, err
		}
		return l.steps(inside, args), nil
	}
	steps, err := langOf(name, head, inside, args)
	if err == nil && bytes.HasPrefix(head, []byte("\x7fELF")) && fi.Mode()&0o111 == 0 {
		return nil, &fault{name, "is a program without the permission to execute it", "chmod +x " + shellLine([]string{name})}
	}
	return steps, err
}
