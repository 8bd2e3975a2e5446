package dockerfile

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func mustParse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse(text)
	if err != nil {
		t.Fatalf("%v, in\n%s", err, text)
	}
	return f
}

func TestParse(t *testing.T) {
	f := mustParse(t, "# syntax=docker/dockerfile:1\n\n# a comment\nARG V=1.2\n"+`FROM --platform=linux/amd64 base:$V AS Build
run apt-get update && \
    # between the lines
  apt-get install -y git \

    curl
RUN ["a", "b c"]
RUN [ -f /x ] && echo yes
ENV A=1 B="two words" C=with\ blank
ENV OLD the whole  rest
ARG X Y=z
COPY --from=0 --chown=1:2 a b /dst/
COPY ["a b", "c"]
RUN <<EOF
echo one
  echo two
EOF
RUN cat <<-"A" <<B >out
	tabs go
A
two
B
COPY <<x.txt /y
content $A
x.txt
CMD
HEALTHCHECK --interval=5s CMD curl localhost
FROM scratch
COPY --from=build /x /
`)
	if f.Syntax != "docker/dockerfile:1" || len(f.Args) != 1 || len(f.Stages) != 2 {
		t.Fatalf("%+v", f)
	}
	s := f.Stages[0]
	if s.Image != "base:$V" || s.Name != "build" || s.Platform != "linux/amd64" || s.From.Line != 5 {
		t.Errorf("%+v", s)
	}
	for i, want := range []Instruction{
		{Line: 6, Name: "RUN", Rest: "apt-get update &&   apt-get install -y git     curl"},
		{Line: 11, Name: "RUN", Rest: `["a", "b c"]`, JSON: true, Words: []string{"a", "b c"}},
		{Line: 12, Name: "RUN", Rest: "[ -f /x ] && echo yes"},
		{Line: 13, Name: "ENV", Rest: `A=1 B="two words" C=with\ blank`, Pairs: []Pair{{"A", "1", true}, {"B", `"two words"`, true}, {"C", `with\ blank`, true}}},
		{Line: 14, Name: "ENV", Rest: "OLD the whole  rest", Pairs: []Pair{{"OLD", "the whole  rest", true}}},
		{Line: 15, Name: "ARG", Rest: "X Y=z", Pairs: []Pair{{"X", "", false}, {"Y", "z", true}}},
		{Line: 16, Name: "COPY", Rest: "a b /dst/", Flags: []Flag{{"from", "0"}, {"chown", "1:2"}}, Words: []string{"a", "b", "/dst/"}},
		{Line: 17, Name: "COPY", Rest: `["a b", "c"]`, JSON: true, Words: []string{"a b", "c"}},
		{Line: 18, Name: "RUN", Rest: "<<EOF", Docs: []Doc{{"EOF", "echo one\n  echo two\n", true}}},
		{Line: 22, Name: "RUN", Rest: `cat <<-"A" <<B >out`, Docs: []Doc{{"A", "tabs go\n", false}, {"B", "two\n", true}}},
		{Line: 27, Name: "COPY", Rest: "<<x.txt /y", Words: []string{"<<x.txt", "/y"}, Docs: []Doc{{"x.txt", "content $A\n", true}}},
		{Line: 30, Name: "CMD"},
		{Line: 31, Name: "HEALTHCHECK", Rest: "CMD curl localhost", Flags: []Flag{{"interval", "5s"}}, Inner: "CMD curl localhost"},
	} {
		if i >= len(s.Steps) || !reflect.DeepEqual(s.Steps[i], want) {
			t.Errorf("step %d:\n%+v, want\n%+v", i, s.Steps[min(i, len(s.Steps)-1)], want)
		}
	}
	if got := f.Needs(1); !reflect.DeepEqual(got, []int{0, 1}) {
		t.Errorf("needs %v", got)
	}
	if got := mustParse(t, "FROM a AS x\nFROM b AS y\nFROM c\nRUN --mount=type=bind,from=y,target=/y ls").Needs(2); !reflect.DeepEqual(got, []int{1, 2}) {
		t.Errorf("needs %v", got)
	}
	if f := mustParse(t, "# escape=`\nFROM a\nRUN dir C:\\ `\n b\r\nRUN x\r\n"); f.Stages[0].Steps[0].Rest != `dir C:\  b` || f.Stages[0].Steps[1].Rest != "x" {
		t.Errorf("%+v", f.Stages[0].Steps)
	}
}

func TestParseRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "1: there is no FROM",
		"RUN ls":                        "1: RUN: comes before",
		"FROM a\nFOO b":                 `2: "FOO" is not`,
		"FROM a\nRUN":                   "2: RUN: it has no arguments",
		"FROM a AS":                     "1: FROM: expected",
		"FROM a AS 1":                   "1: FROM: \"1\" is no name",
		"FROM a AS b\nFROM c AS B":      `2: FROM: there is a stage "b" already, in line 1`,
		"FROM a\n\nRUN <<EOF\nls\n":     "3: RUN: the text that <<EOF",
		"FROM a\nENV A":                 "2: ENV: \"A\" is not NAME=value",
		"FROM a\nENV A=1 B":             "2: ENV: \"B\" is not",
		"FROM a\nSHELL sh":              "2: SHELL: expected an array",
		"FROM a\nRUN a\x00":             "2: a zero byte",
		"# escape=x\nFROM a":            "1: escape is",
		strings.Repeat("#", MaxBytes+1): "1: the file has",
		"FROM a\n" + strings.Repeat("RUN x\n", MaxInstructions): "1001: RUN: more than",
	} {
		_, err := Parse(text)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

func vars(name string) (string, bool) {
	v, ok := map[string]string{"A": "one", "E": "", "P": "/usr/local/lib/x.tar.gz", "Q": "a'b"}[name]
	return v, ok
}

func TestExpand(t *testing.T) {
	for word, want := range map[string]string{
		`plain`: "plain", `$A`: "one", `${A}x`: "onex", `$Ax`: "", `$A-x`: "one-x", `\$A`: "$A", `'$A'`: "$A", `"$A b"`: "one b",
		`"\$A \" \x"`: `$A " \x`, `a\ b`: "a b", `$`: "$", `$1`: "$1", `${N:-d}`: "d", `${E:-d}`: "d", `${E-d}`: "", `${N-d}`: "d", `${A:-d}`: "one",
		`${A:+y}`: "y", `${E:+y}`: "", `${E+y}`: "y", `${N+y}`: "", `${N:-${A}}`: "one", `${N:-"a b"}`: "a b", `$Q`: "a'b",
		`${P##*/}`: "x.tar.gz", `${P#*/}`: "usr/local/lib/x.tar.gz", `${P%.*}`: "/usr/local/lib/x.tar", `${P%%.*}`: "/usr/local/lib/x",
		`${P/lib/bin}`: "/usr/local/bin/x.tar.gz", `${P//l/L}`: "/usr/LocaL/Lib/x.tar.gz", `${A:?gone}`: "one", `""`: "", `x"a"'b'`: "xab",
	} {
		if got, err := Expand(word, '\\', vars); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", word, got, err, want)
		}
	}
	for word, want := range map[string]string{
		`"a`: `a " without`, `'a`: "a ' without", `${A`: "${ without", `${}`: "${ without", `${N:?it is needed}`: "N: it is needed", `${A^x}`: "not understood", `${A:-x`: "missing", `${A#[}`: "is not a pattern",
		strings.Repeat("${N:-", 40) + strings.Repeat("}", 40): "too deep",
	} {
		if got, err := Expand(word, '\\', vars); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", word, got, err, want)
		}
	}
	if got, err := ExpandText("it's \"$A\" \\$A \\n\n", '\\', vars); err != nil || got != "it's \"one\" $A \\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestIgnore(t *testing.T) {
	g, err := ReadIgnore(strings.NewReader("# comment\n*.log\n**/*.tmp\n/node_modules/\n!node_modules/keep\ndocs/**/x\n.git\n!b.log\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"a.log": true, "b.log": false, "d/a.log": false, "x.tmp": true, "d/e/x.tmp": true, "node_modules": true, "node_modules/a/b": true,
		"node_modules/keep": false, "node_modules/keep/c": false, "docs/x": true, "docs/a/b/x": true, "docs/y": false, ".git/config": true, ".github/x": false,
	} {
		if got := g.Match(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !g.Keeps() {
		t.Error("it brings something back")
	}
	if _, err := ReadIgnore(strings.NewReader("a\n[b\n")); err == nil || err.Error() != `2: "[b" is not a pattern` {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("FROM a\nRUN <<E\nx\nE\nENV A=\"b c\" D=$E\nCOPY [\"a\", \"b\"]\n")
	f.Add("# escape=`\nARG X\nFROM $X AS y `\n z\nHEALTHCHECK NONE\nRUN --mount=type=cache,target=/x ls\\\n\n # c\n y")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Line < 1 {
				t.Fatalf("%v: no line", err)
			}
			return
		}
		lines, last := strings.Count(text, "\n")+1, 0
		for n, s := range file.Stages {
			if s.From.Line <= last || s.From.Line > lines {
				t.Fatalf("line %d after %d of %d", s.From.Line, last, lines)
			}
			last = s.From.Line
			for _, i := range s.Steps {
				if i.Line <= last || i.Line > lines {
					t.Fatalf("line %d after %d of %d", i.Line, last, lines)
				}
				last = i.Line
				if strings.ContainsRune(i.String(), '\n') {
					t.Fatalf("a line of several: %q", i.String())
				}
				for _, w := range append(i.Words, i.Rest) {
					Expand(w, file.Escape, vars)
				}
			}
			file.Needs(n)
		}
	})
}

func FuzzExpand(f *testing.F) {
	f.Add(`a${A:-"x$Q"}'$A'`)
	f.Add(`${P//l/${A}}`)
	f.Fuzz(func(t *testing.T, word string) {
		if got, err := Expand(word, '\\', vars); err == nil && len(got) > 2*maxExpanded {
			t.Fatalf("%d bytes", len(got))
		}
		if !strings.ContainsAny(word, `$\'"`) {
			if got, err := Expand(word, '\\', vars); len(word) < maxExpanded && (err != nil || got != word) {
				t.Fatalf("%q became %q, %v", word, got, err)
			}
		}
	})
}

func ExampleParse() {
	f, err := Parse("FROM debian\nRUN apt-get update\n")
	fmt.Println(f.Stages[0].Image, f.Stages[0].Steps[0], err)
	// Output: debian RUN apt-get update <nil>
}
