package dockerfile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// known are the instructions there are, and whether they take flags.
var known = map[string]bool{
	"FROM": true, "RUN": true, "CMD": false, "LABEL": false, "MAINTAINER": false, "EXPOSE": false, "ENV": false, "ADD": true, "COPY": true,
	"ENTRYPOINT": false, "VOLUME": false, "USER": false, "WORKDIR": false, "ARG": false, "ONBUILD": false, "STOPSIGNAL": false,
	"HEALTHCHECK": true, "SHELL": false,
}

type lines struct {
	all    []string
	at     int // the next one, from 0
	escape byte
}

var directive = regexp.MustCompile(`^#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.*?)\s*$`)

// directives reads the comments at the very beginning that say how to read on.
func (r *lines) directives(f *File) error {
	seen := map[string]bool{}
	if len(r.all) > 0 && strings.HasPrefix(r.all[0], "#!") {
		r.at++
	}
	for ; r.at < len(r.all); r.at++ {
		m := directive.FindStringSubmatch(strings.TrimRight(r.all[r.at], "\r"))
		if m == nil {
			return nil
		}
		name := strings.ToLower(m[1])
		if seen[name] {
			return &Error{Line: r.at + 1, Text: "the directive " + name + " comes twice"}
		}
		seen[name] = true
		switch name {
		case "escape":
			if m[2] != "\\" && m[2] != "`" {
				return &Error{Line: r.at + 1, Text: "escape is \\ or `"}
			}
			r.escape = m[2][0]
		case "syntax":
			f.Syntax = m[2]
		case "check":
		default:
			return nil // a comment like any other
		}
	}
	return nil
}

// next is the next instruction.
func (r *lines) next() (ins Instruction, ok bool, err error) {
	var text strings.Builder
	started := false
	for r.at < len(r.all) {
		line := strings.TrimRight(r.all[r.at], "\r")
		trimmed := strings.TrimLeft(line, " \t")
		if trimmed == "" || trimmed[0] == '#' { // also between lines that belong together
			r.at++
			continue
		}
		if !started {
			started, ins.Line, line = true, r.at+1, trimmed
		}
		r.at++
		part, more := r.continued(line)
		text.WriteString(part)
		if !more {
			break
		}
	}
	if !started {
		return ins, false, nil
	}
	if err := r.split(&ins, strings.TrimSpace(text.String())); err != nil {
		return ins, false, err
	}
	return ins, true, nil
}

// continued cuts the mark off a line that goes on.
func (r *lines) continued(line string) (string, bool) {
	t := strings.TrimRight(line, " \t")
	if n := len(t) - 1; n >= 0 && t[n] == r.escape && (n == 0 || t[n-1] != r.escape) {
		return t[:n], true
	}
	return line, false
}

// split takes a logical line apart.
func (r *lines) split(ins *Instruction, text string) error {
	name, rest := text, ""
	if n := strings.IndexAny(text, " \t"); n >= 0 {
		name, rest = text[:n], strings.TrimSpace(text[n:])
	}
	ins.Name = strings.ToUpper(name)
	bad := func(format string, args ...any) error {
		return &Error{ins.Line, ins.Name, fmt.Sprintf(format, args...)}
	}
	flags, is := known[ins.Name]
	if !is {
		return &Error{Line: ins.Line, Text: fmt.Sprintf("%.40q is not an instruction", name)}
	}
	for flags && strings.HasPrefix(rest, "--") {
		word := rest
		if n := strings.IndexAny(rest, " \t"); n >= 0 {
			word, rest = rest[:n], strings.TrimSpace(rest[n:])
		} else {
			rest = ""
		}
		if word == "--" {
			break
		}
		k, v, _ := strings.Cut(word[2:], "=")
		ins.Flags = append(ins.Flags, Flag{strings.ToLower(k), v})
	}
	ins.Rest = rest
	if rest == "" && ins.Name != "CMD" && ins.Name != "ENTRYPOINT" {
		return bad("it has no arguments")
	}
	switch ins.Name {
	case "RUN", "COPY", "ADD":
		if err := r.docs(ins); err != nil {
			return err
		}
	}
	switch ins.Name {
	case "RUN", "CMD", "ENTRYPOINT", "SHELL":
		ins.array()
		if ins.Name == "SHELL" && !ins.JSON {
			return bad(`expected an array: SHELL ["program", "argument"]`)
		}
	case "COPY", "ADD", "VOLUME":
		if !ins.array() {
			ins.Words = strings.Fields(rest)
		}
	case "ENV", "LABEL", "ARG":
		return r.pairs(ins)
	case "ONBUILD", "HEALTHCHECK", "MAINTAINER":
		ins.Inner = rest
	default:
		ins.Words = strings.Fields(rest)
	}
	if len(ins.Words) > maxWords {
		return bad("more than %d words", maxWords)
	}
	return nil
}

// array reads the JSON form; what is none is words.
func (i *Instruction) array() bool {
	if !strings.HasPrefix(i.Rest, "[") {
		return false
	}
	var words []string
	d := json.NewDecoder(strings.NewReader(i.Rest))
	if d.Decode(&words) != nil || strings.TrimSpace(i.Rest[d.InputOffset():]) != "" {
		return false
	}
	for _, w := range words {
		if strings.ContainsRune(w, 0) {
			return false
		}
	}
	i.JSON, i.Words = true, words
	return true
}

var here = regexp.MustCompile(`^[0-9]*<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_.-]*)(["']?)([;|&>)].*)?$`)

// docs reads the here-documents that a line announces.
func (r *lines) docs(ins *Instruction) error {
	if strings.HasPrefix(ins.Rest, "[") {
		return nil
	}
	for _, word := range strings.Fields(ins.Rest) {
		m := here.FindStringSubmatch(word)
		if m == nil || m[2] != m[4] {
			continue
		}
		d := Doc{Name: m[3], Expand: m[2] == ""}
		var text strings.Builder
		for closed := false; !closed; r.at++ {
			if r.at >= len(r.all) {
				return &Error{ins.Line, ins.Name, fmt.Sprintf("the text that <<%s begins has no end: no line is %s alone", d.Name, d.Name)}
			}
			line := strings.TrimRight(r.all[r.at], "\r")
			if m[1] == "-" {
				line = strings.TrimLeft(line, "\t")
			}
			if line == d.Name {
				closed = true
				continue
			}
			text.WriteString(line + "\n")
		}
		d.Text = text.String()
		ins.Docs = append(ins.Docs, d)
	}
	return nil
}

// pairs reads NAME=value words, and the old form of ENV and LABEL.
func (r *lines) pairs(ins *Instruction) error {
	words := r.words(ins.Rest)
	if len(words) > maxWords {
		return &Error{ins.Line, ins.Name, fmt.Sprintf("more than %d words", maxWords)}
	}
	bad := func(w string) error { return &Error{ins.Line, ins.Name, fmt.Sprintf("%.60q is not NAME=value", w)} }
	if ins.Name != "ARG" && !strings.Contains(words[0], "=") {
		_, value, _ := strings.Cut(ins.Rest, words[0])
		if value = strings.TrimSpace(value); value == "" {
			return bad(words[0])
		}
		ins.Pairs = []Pair{{words[0], value, true}}
		return nil
	}
	for _, w := range words {
		name, value, set := strings.Cut(w, "=")
		if name == "" || !set && ins.Name != "ARG" {
			return bad(w)
		}
		ins.Pairs = append(ins.Pairs, Pair{name, value, set})
	}
	return nil
}

// words splits at blanks that are neither quoted nor escaped. Quotes stay.
func (r *lines) words(s string) (out []string) {
	var w strings.Builder
	var quote byte
	in := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == r.escape && quote != '\'' && i+1 < len(s):
			w.WriteByte(c)
			i++
			w.WriteByte(s[i])
			in = true
		case quote != 0:
			w.WriteByte(c)
			if c == quote {
				quote = 0
			}
		case c == ' ' || c == '\t':
			if in {
				out = append(out, w.String())
				w.Reset()
			}
			in = false
		default:
			if c == '"' || c == '\'' {
				quote = c
			}
			w.WriteByte(c)
			in = true
		}
	}
	if in {
		out = append(out, w.String())
	}
	return out
}
