package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tt := range []struct {
		name   string
		opt    runOptions
		rest   []string
		dashes bool
		stdin  string
		want   []string // the last step
		inside string   // where the one file goes
		bad    string
	}{
		{name: "command", rest: []string{"ls", "-l"}, dashes: true, want: []string{"ls", "-l"}},
		{name: "python", rest: []string{write("a.py", "", 0o644), "1"}, want: []string{"python3", "/workspace/a.py", "1"}, inside: "/workspace/a.py"},
		{name: "module", rest: []string{write("a.mjs", "", 0o644)}, want: []string{"node", "/workspace/a.mjs"}, inside: "/workspace/a.mjs"},
		{name: "shell", rest: []string{write("a.sh", "echo", 0o644)}, want: []string{"sh", "/workspace/a.sh"}, inside: "/workspace/a.sh"},
		{name: "shell says bash", rest: []string{write("b.sh", "#!/bin/bash -e\n", 0o644)}, want: []string{"/bin/bash", "-e", "/workspace/b.sh"}, inside: "/workspace/b.sh"},
		{name: "shebang", rest: []string{write("tool", "#!/usr/bin/env python3\n", 0o644), "x"}, want: []string{"python3", "/workspace/tool", "x"}, inside: "/workspace/tool"},
		{name: "extension before shebang", rest: []string{write("v.py", "#!/home/me/venv/bin/python\n", 0o644)}, want: []string{"python3", "/workspace/v.py"}, inside: "/workspace/v.py"},
		{name: "lang before extension", opt: runOptions{lang: "bash"}, rest: []string{write("c.txt", "", 0o644)}, want: []string{"bash", "/workspace/c.txt"}, inside: "/workspace/c.txt"},
		{name: "binary", rest: []string{write("bin", "\x7fELF", 0o755)}, want: []string{"/workspace/bin"}, inside: "/workspace/bin"},
		{name: "binary not executable", rest: []string{write("bin2", "\x7fELF", 0o644)}, bad: "permission"},
		{name: "go", rest: []string{write("m.go", "", 0o644), "x"}, want: []string{"/tmp/berm-go/main", "x"}, inside: "/workspace/m.go"},
		{name: "code", opt: runOptions{hasCode: true, code: "print(1)", lang: "python"}, rest: []string{"a"}, want: []string{"python3", "/workspace/main.py", "a"}, inside: "/workspace/main.py"},
		{name: "code without lang", opt: runOptions{hasCode: true, code: "x"}, bad: "does not say its language"},
		{name: "bad lang", opt: runOptions{hasCode: true, code: "x", lang: "pyton"}, bad: "not a language"},
		{name: "stdin", opt: runOptions{lang: "sh"}, rest: []string{"-", "a"}, stdin: "echo", want: []string{"sh", "/workspace/main.sh", "a"}, inside: "/workspace/main.sh"},
		{name: "stdin shebang", rest: []string{"-"}, stdin: "#!/bin/sh\n", want: []string{"/bin/sh", "/workspace/main"}, inside: "/workspace/main"},
		{name: "stdin unknown", rest: []string{"-"}, stdin: "echo", bad: "no #! line"},
		{name: "stdin twice", opt: runOptions{stdin: true, lang: "sh"}, rest: []string{"-"}, bad: "already the code"},
		{name: "nothing", bad: "no file"},
		{name: "nothing after dashes", dashes: true, bad: "no command"},
		{name: "missing", rest: []string{filepath.Join(dir, "nope.py")}, bad: "no such file"},
		{name: "folder", rest: []string{dir}, bad: "not a regular file"},
		{name: "pipe", rest: []string{filepath.Join(dir, "pipe")}, bad: "not a regular file"},
		{name: "unknown kind", rest: []string{write("notes.txt", "hello", 0o644)}, bad: "\".txt\" is not a language that berm runs; it runs python, "},
		{name: "C", rest: []string{write("e.c", "int main;", 0o644)}, bad: "\".c\" is not"},
		{name: "no extension", rest: []string{write("plain", "hello", 0o644)}, bad: "no extension"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps, err := tt.opt.program(tt.rest, tt.dashes, strings.NewReader(tt.stdin))
			if tt.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tt.bad) {
					t.Errorf("err = %v, want %q", err, tt.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := steps[len(steps)-1].args; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("args = %q, want %q", got, tt.want)
			}
			if tt.inside != "" && (len(tt.opt.in) != 1 || tt.opt.in[0].dest != tt.inside) {
				t.Errorf("in = %+v", tt.opt.in)
			}
		})
	}
}

// Modules come from where the sandbox may go, if it may go anywhere.
func TestGoModules(t *testing.T) {
	for _, tt := range []struct {
		name string
		wire wireOptions
		off  bool
	}{
		{"no link", wireOptions{}, true},
		{"a document without egress", wireOptions{document: &api.Policy{}}, true},
		{"allow", wireOptions{allow: []string{"preset:go"}}, false},
		{"a document", wireOptions{document: &api.Policy{Egress: []byte("[]")}}, false},
		{"learn", wireOptions{learn: true}, false},
	} {
		o := runOptions{hasCode: true, code: "package main", lang: "go", wire: tt.wire}
		steps, err := o.program(nil, false, strings.NewReader(""))
		if err != nil || len(steps) != 2 {
			t.Fatalf("%s: %v, %+v", tt.name, err, steps)
		}
		if _, off := steps[0].env["GOPROXY"]; off != tt.off || steps[0].env["GOCACHE"] == "" {
			t.Errorf("%s: %v", tt.name, steps[0].env)
		}
	}
}

func TestParseIn(t *testing.T) {
	t.Chdir(t.TempDir())
	os.WriteFile("f.csv", nil, 0o644)
	os.Mkdir("d", 0o755)
	for in, want := range map[string]string{
		"f.csv": "/workspace/f.csv", "f.csv:in/": "/workspace/in/f.csv", "f.csv:x.csv": "/workspace/x.csv",
		"f.csv:/home/agent/x": "/home/agent/x", "f.csv:.": "/workspace/f.csv", "f.csv:/workspace": "/workspace/f.csv",
		"d": "/workspace/d", "d:.": "/workspace", "d:src": "/workspace/src", "d:src/": "/workspace/src/d", "./d/": "/workspace/d",
		"f.csv:/tmp": "/tmp/f.csv",
	} {
		if c, err := parseIn(in); err != nil || c.dest != want {
			t.Errorf("parseIn(%q) = %q, %v; want %q", in, c.dest, err, want)
		}
	}
	os.WriteFile("we:ird.txt", nil, 0o644)
	for in, want := range map[string]string{"we:ird.txt": "/workspace/we:ird.txt", "we:ird.txt:x": "/workspace/x"} {
		if c, err := parseIn(in); err != nil || c.local != "we:ird.txt" || c.dest != want {
			t.Errorf("parseIn(%q) = %+v, %v; want %q", in, c, err, want)
		}
	}
	for _, bad := range []string{"", ":x", "f.csv:", "nope", "f.csv:a/../../b", "/dev/null"} {
		if c, err := parseIn(bad); err == nil {
			t.Errorf("parseIn(%q) = %+v", bad, c)
		}
	}
}
