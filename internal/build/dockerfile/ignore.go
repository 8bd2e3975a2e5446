package dockerfile

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// An Ignore is what a .dockerignore leaves out of a context.
type Ignore struct{ rules []rule }

type rule struct {
	keep  bool     // !
	parts []string // between slashes
}

// ReadIgnore reads a .dockerignore: a pattern a line, # begins a comment.
func ReadIgnore(r io.Reader) (Ignore, error) {
	var g Ignore
	in := bufio.NewScanner(io.LimitReader(r, MaxBytes))
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		p, keep := strings.CutPrefix(strings.TrimSpace(line), "!")
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		p = strings.TrimPrefix(path.Clean(p), "/")
		if p == "." || p == "" {
			continue // it would leave out everything
		}
		if _, err := path.Match(strings.ReplaceAll(p, "**", "*"), ""); err != nil {
			return g, &Error{Line: n, Text: fmt.Sprintf("%.60q is not a pattern", p)}
		}
		if len(g.rules) == 10000 {
			return g, &Error{Line: n, Text: "more than 10000 patterns"}
		}
		g.rules = append(g.rules, rule{keep, strings.Split(p, "/")})
	}
	return g, in.Err()
}

// Match says whether a path below the context, with slashes, is left out. What
// is below a directory that is left out is, too, unless a later pattern with !
// brings it back.
func (g Ignore) Match(name string) bool {
	parts := strings.Split(name, "/")
	out := false
	for _, r := range g.rules {
		if out != r.keep { // it would change nothing
			continue
		}
		for n := 1; n <= len(parts); n++ {
			if match(r.parts, parts[:n]) {
				out = !r.keep
				break
			}
		}
	}
	return out
}

// Keeps says whether a pattern brings something back, so that a directory that
// is left out has to be looked into.
func (g Ignore) Keeps() bool {
	for _, r := range g.rules {
		if r.keep {
			return true
		}
	}
	return false
}

// match compares a pattern with a path, part by part; ** is any number of parts.
func match(pattern, parts []string) bool {
	// The row of a table: which beginnings of the path the pattern so far fits.
	row := make([]bool, len(parts)+1)
	row[0] = true
	for _, p := range pattern {
		next := make([]bool, len(parts)+1)
		for i, is := range row {
			switch {
			case !is:
			case p == "**":
				for j := i; j <= len(parts); j++ {
					next[j] = true
				}
			case i < len(parts):
				if ok, _ := path.Match(p, parts[i]); ok {
					next[i+1] = true
				}
			}
		}
		row = next
	}
	return row[len(parts)]
}

// Glob says whether a path fits a pattern of COPY, where * never crosses a slash.
func Glob(pattern, name string) bool {
	return match(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

// IsGlob says whether a word is a pattern.
func IsGlob(s string) bool { return strings.ContainsAny(s, "*?[") }
