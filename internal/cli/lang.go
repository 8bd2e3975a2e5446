package cli

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/bermhq/berm/api"
)

// A lang is a language that berm knows how to run.
type lang struct {
	name    string
	aliases []string
	exts    []string
	prog    string // found by PATH inside
	pkg     string // Debian package of it
	main    string // file name for code without one
}

var langs = []lang{
	{"python", []string{"python3", "py"}, []string{".py"}, "python3", "python3", "main.py"},
	{"javascript", []string{"node", "js", "nodejs"}, []string{".js", ".mjs", ".cjs"}, "node", "nodejs", "main.js"},
	{"sh", []string{"shell"}, []string{".sh"}, "sh", "dash", "main.sh"},
	{"bash", nil, []string{".bash"}, "bash", "bash", "main.bash"},
	{"go", []string{"golang"}, []string{".go"}, "go", "golang-go", "main.go"},
	{"ruby", []string{"rb"}, []string{".rb"}, "ruby", "ruby", "main.rb"},
	{"perl", []string{"pl"}, []string{".pl"}, "perl", "perl", "main.pl"},
}

// langNames lists what --lang takes.
func langNames() (out []string) {
	for _, l := range langs {
		out = append(out, l.name)
	}
	return out
}

func langByName(name string) (lang, error) {
	name = strings.ToLower(name)
	for _, l := range langs {
		if l.name == name {
			return l, nil
		}
		for _, a := range l.aliases {
			if a == name {
				return l, nil
			}
		}
	}
	f := &fault{what: "--lang " + name, why: "is not a language that berm runs; it runs " + strings.Join(langNames(), ", ")}
	if near := nearest(name, langNames()); near != "" {
		f.try = "--lang " + near
	}
	return lang{}, f
}

// A step is one command of a program. Its interp, where set, is what Berm chose
// and the user did not name: if it is missing, that is Berm's to explain.
type step struct {
	args   []string
	env    map[string]string
	interp string
	pkg    string // how to get interp, "" if unknown
}

// steps is how l runs file, a path inside.
func (l lang) steps(file string, args []string) []step {
	if l.name != "go" {
		return []step{{args: append([]string{l.prog, file}, args...), interp: l.prog, pkg: l.pkg}}
	}
	// Built first and then run by itself, so that the exit code is its own.
	const binary = "/tmp/berm-go/main"
	return []step{
		{args: []string{"go", "build", "-o", binary, file}, interp: "go", pkg: l.pkg, env: map[string]string{
			"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "GOTELEMETRY": "off",
			"GOCACHE": api.GuestHome + "/.cache/go-build", "GOPATH": api.GuestHome + "/go", "CGO_ENABLED": "0",
		}},
		{args: append([]string{binary}, args...)},
	}
}

// langOf finds the language of a file: by its extension, or by its first line;
// a shell script's first line says more than its extension.
func langOf(name string, head []byte, inside string, args []string) ([]step, error) {
	bang, hasBang := shebang(head)
	ext := strings.ToLower(filepath.Ext(name))
	for _, l := range langs {
		for _, e := range l.exts {
			if e == ext && !(hasBang && ext == ".sh") {
				return l.steps(inside, args), nil
			}
		}
	}
	switch {
	case hasBang:
		s := step{args: append(append(bang, inside), args...), interp: bang[0]}
		for _, l := range langs {
			if l.prog == path.Base(bang[0]) {
				s.pkg = l.pkg
			}
		}
		return []step{s}, nil
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return []step{{args: append([]string{inside}, args...)}}, nil
	}
	if ext != "" && ext != "." {
		return nil, &fault{name, fmt.Sprintf("%q is not a language that berm runs; it runs %s, or a file with a #! line", ext, strings.Join(langNames(), ", ")),
			"berm run --in " + shellLine([]string{name}) + " -- COMMAND " + shellLine(append([]string{path.Base(inside)}, args...))}
	}
	return nil, &fault{name, "has no extension and no #! line that says its language", "berm run --lang python " + shellLine([]string{name})}
}

// shebang reads the interpreter of a first line such as #!/usr/bin/env python3.
func shebang(head []byte) (args []string, ok bool) {
	line, found := bytes.CutPrefix(head, []byte("#!"))
	if !found {
		return nil, false
	}
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	}
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, false
	}
	args = strings.Fields(string(line))
	if len(args) > 0 && path.Base(args[0]) == "env" {
		args = args[1:]
		if len(args) > 0 && args[0] == "-S" {
			args = args[1:]
		}
	}
	return args, len(args) > 0
}
