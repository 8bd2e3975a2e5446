package cli

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The bash completion in a real bash: the words that it offers for a line.
func TestBashCompletion(t *testing.T) {
	sh, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	t.Chdir(t.TempDir())
	os.WriteFile("with space.py", nil, 0o644)
	os.Mkdir("dir", 0o755)
	bin := t.TempDir() // a berm whose daemon knows two sandboxes and a command
	os.WriteFile(bin+"/berm", []byte("#!/bin/sh\nif [ \"$1\" = --state ]; then echo sfromstate; exit; fi\n"+
		"case \"$*\" in 'ls -q'|'ls -qa') echo sabc; echo sdef;; 'ps -q') echo xabc;; esac\n"), 0o755)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var script bytes.Buffer
	bash(&script)
	for _, tt := range []struct {
		line []string // the last word is at the cursor
		want []string
		some bool // want is among what is offered
	}{
		{[]string{"berm", "ru"}, []string{"run"}, false},
		{[]string{"berm", "--state", "/tmp", "ru"}, []string{"run"}, false},
		{[]string{"berm", "--state", "d"}, []string{"dir"}, false},
		{[]string{"berm", "bench", ""}, []string{"run", "exec", "files"}, false},
		{[]string{"berm", "completion", "z"}, []string{"zsh"}, false},
		{[]string{"berm", "help", "atta"}, []string{"attach", "attack"}, false},
		{[]string{"berm", "audit", "ver"}, []string{"verify"}, false},
		{[]string{"berm", "token", "create", "--role", "op"}, []string{"operator"}, false},
		{[]string{"berm", "fs", "ls", "--lo"}, []string{"--long"}, false},
		{[]string{"berm", "audit", "verify", "with"}, []string{"with space.py"}, false},
		{[]string{"berm", "serve", "--token-file", "with"}, []string{"with space.py"}, false},
		{[]string{"berm", "doctor", ""}, nil, false},
		{[]string{"berm", "attack", "--only", "ben"}, []string{"benign"}, false},
		{[]string{"berm", "attack", "--format", "s"}, []string{"sarif"}, false},
		{[]string{"berm", "attack", "v"}, []string{"verify"}, false},
		{[]string{"berm", "attack", "verify", "with"}, []string{"with space.py"}, false},
		{[]string{"berm", "attack", "render", "--format", "ht"}, []string{"html"}, false},
		{[]string{"berm", "run", "--lang", "py"}, []string{"python"}, false},
		{[]string{"berm", "run", "--mem"}, []string{"--memory"}, false},
		{[]string{"berm", "run", "with"}, []string{"with space.py"}, false},
		{[]string{"berm", "exec", ""}, []string{"sabc", "sdef"}, false},
		{[]string{"berm", "info", "sd"}, []string{"sdef"}, false},
		{[]string{"berm", "kill", "x"}, []string{"xabc"}, false},
		{[]string{"berm", "attach", ""}, []string{"xabc"}, false},
		{[]string{"berm", "fs", "cat", "sa"}, []string{"sabc:"}, false},
		{[]string{"berm", "cp", "sa"}, []string{"sabc:"}, false},
		{[]string{"berm", "--state", "d", "exec", ""}, []string{"sfromstate"}, false},
		{[]string{"berm", "token", "revoke", ""}, nil, false},
		{[]string{"berm", ""}, []string{"run", "doctor", "completion", "help"}, true},
	} {
		cmd := exec.Command(sh, "--norc", "-c", script.String()+`
COMP_WORDS=("$@") COMP_CWORD=$(($#-1)); _berm; printf '%s\n' "${COMPREPLY[@]}"`, "bash")
		cmd.Args = append(cmd.Args, tt.line...)
		out, err := cmd.CombinedOutput()
		got := slices.DeleteFunc(strings.Split(string(out), "\n"), func(s string) bool { return s == "" })
		if err != nil || !tt.some && !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v; want %q", tt.line, got, err, tt.want)
		}
		for _, w := range tt.want {
			if !slices.Contains(got, w) {
				t.Errorf("%q: %q lacks %q", tt.line, got, w)
			}
		}
	}
}
