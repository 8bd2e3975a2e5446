// Package dockerfile reads the text of a Dockerfile: lines and what continues
// them, here-documents, flags, the JSON form of arguments, variables in words,
// and the patterns of a .dockerignore. It knows the grammar and no meaning; it
// runs, opens and fetches nothing.
package dockerfile

import (
	"fmt"
	"strings"
)

// Bounds of a file.
const (
	MaxBytes        = 1 << 20
	MaxInstructions = 1000
	maxWords        = 4096 // of one instruction
)

// An Error says where a file cannot be understood.
type Error struct {
	Line int    // from 1
	Name string // the instruction; "" outside of one
	Text string
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%d: %s", e.Line, e.Text)
	}
	return fmt.Sprintf("%d: %s: %s", e.Line, e.Name, e.Text)
}

// A File is a Dockerfile as it was written.
type File struct {
	Args   []Instruction // ARG before the first FROM
	Stages []Stage
	Escape byte // what continues a line and protects a character
	Syntax string
}

// A Stage is a FROM and what follows it.
type Stage struct {
	From     Instruction
	Image    string // as written, variables and all
	Name     string // AS, in lower case; "": none
	Platform string
	Steps    []Instruction
}

// An Instruction is one logical line.
type Instruction struct {
	Line  int    // where it begins, from 1
	Name  string // in capitals
	Rest  string // what follows name and flags, joined to one line
	Flags []Flag
	// JSON says that the arguments were a JSON array: they are Words, exactly.
	JSON  bool
	Words []string // RUN, CMD, ENTRYPOINT, SHELL: only with JSON. Variables are not replaced
	Pairs []Pair   // ENV, LABEL, ARG
	Docs  []Doc    // here-documents of RUN, COPY and ADD, in order
	// Inner is what HEALTHCHECK or ONBUILD hold.
	Inner string
}

// A Flag is --Name or --Name=Value.
type Flag struct{ Name, Value string }

// A Pair is NAME=value, quotes and variables as written; Set is false for an ARG
// without a value.
type Pair struct {
	Name, Value string
	Set         bool
}

// A Doc is a here-document.
type Doc struct {
	Name   string
	Text   string
	Expand bool // its name was not quoted: variables in it count
}

// Flag is the last value of a flag, and whether there is one.
func (i Instruction) Flag(name string) (string, bool) {
	for n := len(i.Flags) - 1; n >= 0; n-- {
		if i.Flags[n].Name == name {
			return i.Flags[n].Value, true
		}
	}
	return "", false
}

// String is the instruction as a log shows it.
func (i Instruction) String() string {
	var b strings.Builder
	b.WriteString(i.Name)
	for _, f := range i.Flags {
		b.WriteString(" --" + f.Name)
		if f.Value != "" {
			b.WriteString("=" + f.Value)
		}
	}
	if i.Rest != "" {
		b.WriteString(" " + i.Rest)
	}
	return b.String()
}

// Parse reads a file. Errors are *Error.
func Parse(text string) (*File, error) {
	if len(text) > MaxBytes {
		return nil, &Error{Line: 1, Text: fmt.Sprintf("the file has %d bytes, and may have %d", len(text), MaxBytes)}
	}
	if strings.ContainsRune(text, 0) {
		return nil, &Error{Line: 1 + strings.Count(text[:strings.IndexByte(text, 0)], "\n"), Text: "a zero byte"}
	}
	text = strings.TrimPrefix(text, "\ufeff")
	r := &lines{all: strings.Split(text, "\n"), escape: '\\'}
	f := &File{}
	if err := r.directives(f); err != nil {
		return nil, err
	}
	f.Escape = r.escape
	count := 0
	for {
		ins, ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if count++; count > MaxInstructions {
			return nil, &Error{Line: ins.Line, Name: ins.Name, Text: fmt.Sprintf("more than %d instructions", MaxInstructions)}
		}
		if err := f.add(ins); err != nil {
			return nil, err
		}
	}
	if len(f.Stages) == 0 {
		return nil, &Error{Line: len(r.all), Text: "there is no FROM: it says what the template begins with"}
	}
	return f, nil
}

func (f *File) add(ins Instruction) error {
	switch {
	case ins.Name == "FROM":
		st := Stage{From: ins}
		st.Platform, _ = ins.Flag("platform")
		switch w := ins.Words; {
		case len(w) == 1:
			st.Image = w[0]
		case len(w) == 3 && strings.EqualFold(w[1], "AS"):
			st.Image, st.Name = w[0], strings.ToLower(w[2])
			if !stageName(st.Name) {
				return &Error{ins.Line, ins.Name, fmt.Sprintf("%.60q is no name of a stage: a letter, then letters, digits, - _ .", w[2])}
			}
			for _, s := range f.Stages {
				if s.Name == st.Name {
					return &Error{ins.Line, ins.Name, fmt.Sprintf("there is a stage %q already, in line %d", st.Name, s.From.Line)}
				}
			}
		default:
			return &Error{ins.Line, ins.Name, "expected: FROM [--platform=PLATFORM] IMAGE [AS NAME]"}
		}
		f.Stages = append(f.Stages, st)
	case len(f.Stages) > 0:
		last := &f.Stages[len(f.Stages)-1]
		last.Steps = append(last.Steps, ins)
	case ins.Name == "ARG":
		f.Args = append(f.Args, ins)
	default:
		return &Error{ins.Line, ins.Name, "comes before the first FROM, where only ARG may"}
	}
	return nil
}

func stageName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z'
		if i == 0 && !letter || !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return s != ""
}

// Needs lists, in order, the stages that the stage at index last is made from,
// itself included. Names of stages in FROM and --from count; whatever else is
// named there is an image, and none of this file's business.
func (f *File) Needs(last int) []int {
	need := make([]bool, len(f.Stages))
	var mark func(int)
	mark = func(n int) {
		if need[n] {
			return
		}
		need[n] = true
		if m, ok := f.Stage(f.Stages[n].Image, n); ok {
			mark(m)
		}
		for _, s := range f.Stages[n].Steps {
			if from, ok := s.Source(); ok {
				if m, ok := f.Stage(from, n); ok {
					mark(m)
				}
			}
		}
	}
	mark(last)
	var out []int
	for n, is := range need {
		if is {
			out = append(out, n)
		}
	}
	return out
}

// Stage finds an earlier stage than before by its name or number.
func (f *File) Stage(name string, before int) (int, bool) {
	for n := before - 1; n >= 0; n-- {
		if f.Stages[n].Name != "" && strings.EqualFold(f.Stages[n].Name, name) || fmt.Sprint(n) == name {
			return n, true
		}
	}
	return 0, false
}

// Source is what an instruction copies or mounts from, where that is not the
// context.
func (i Instruction) Source() (string, bool) {
	if from, ok := i.Flag("from"); ok {
		return from, true
	}
	for _, f := range i.Flags {
		if f.Name != "mount" {
			continue
		}
		for _, kv := range strings.Split(f.Value, ",") {
			if from, ok := strings.CutPrefix(kv, "from="); ok {
				return from, true
			}
		}
	}
	return "", false
}
