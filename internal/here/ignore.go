package here

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxIgnoreFile bounds a .gitignore that is read; git has a bound of its own.
const maxIgnoreFile = 1 << 20

// A pattern is one line in the form of a .gitignore.
type pattern struct {
	re     *regexp.Regexp // of the path below the pattern's folder, or of the last name
	name   bool           // re is of the last name
	negate bool
	dir    bool // folders only
}

// rules are the patterns of one file or of one list; the last that matches
// decides.
type rules struct {
	base string // the folder that they are relative to: "" is the tree
	up   string // what lies between the tree and a folder above it, with a slash
	pats []pattern
}

// ParsePatterns reads patterns as a .gitignore has them, relative to the tree.
func ParsePatterns(lines []string) (*Patterns, error) {
	r := rules{}
	for _, l := range lines {
		p, ok, err := parsePattern(l)
		if err != nil || !ok {
			return nil, fmt.Errorf("%q is not a pattern as a .gitignore has them", l)
		}
		r.pats = append(r.pats, p)
	}
	return &Patterns{r}, nil
}

// Patterns are a list of patterns from a caller.
type Patterns struct{ r rules }

// match says whether the last pattern that matches path, or a folder above it,
// says yes.
func (p *Patterns) match(path string, dir bool) bool {
	if p == nil || len(p.r.pats) == 0 {
		return false
	}
	for i := 0; i < len(path); i++ {
		if path[i] == '/' {
			if yes, _ := p.r.match(path[:i], true); yes {
				return true
			}
		}
	}
	yes, _ := p.r.match(path, dir)
	return yes
}

// match says what the rules say of a path, if they say anything.
func (r *rules) match(path string, dir bool) (yes, said bool) {
	rel := path
	if r.base != "" {
		if !strings.HasPrefix(path, r.base+"/") {
			return false, false
		}
		rel = path[len(r.base)+1:]
	}
	rel = r.up + rel
	name := base(rel)
	for i := len(r.pats) - 1; i >= 0; i-- {
		p := &r.pats[i]
		if p.dir && !dir {
			continue
		}
		s := rel
		if p.name {
			s = name
		}
		if p.re.MatchString(s) {
			return !p.negate, true
		}
	}
	return false, false
}

// ignored asks a stack of rules, the nearest last.
func ignored(stack []*rules, path string, dir bool) bool {
	for i := len(stack) - 1; i >= 0; i-- {
		if yes, said := stack[i].match(path, dir); said {
			return yes
		}
	}
	return false
}

// parseIgnore reads a .gitignore. A line that is none is passed by, as git does.
func parseIgnore(data []byte, base, up string) *rules {
	r := &rules{base: base, up: up}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for line := range bytes.Lines(data) {
		if p, ok, err := parsePattern(strings.TrimSuffix(string(line), "\n")); ok && err == nil {
			r.pats = append(r.pats, p)
		}
	}
	return r
}

// parsePattern reads one line; ok is false for an empty one and a comment.
func parsePattern(line string) (p pattern, ok bool, err error) {
	line = strings.TrimSuffix(line, "\r")
	if strings.HasPrefix(line, "#") {
		return p, false, nil
	}
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if strings.HasPrefix(line, "!") {
		p.negate, line = true, line[1:]
	}
	if strings.HasSuffix(line, "/") {
		p.dir, line = true, line[:len(line)-1]
	}
	if line == "" || len(line) > 4096 {
		return p, false, nil
	}
	p.name = !strings.Contains(line, "/")
	text, ok := translate(strings.TrimPrefix(line, "/"))
	if !ok {
		return p, false, nil
	}
	p.re, err = regexp.Compile(text)
	return p, err == nil, err
}

// translate turns a glob, as git's wildmatch has them, into an expression. ok is
// false for one that can match nothing.
func translate(glob string) (expr string, ok bool) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for i := 0; i < len(glob); {
		switch c := glob[i]; c {
		case '*':
			n := 1
			for i+n < len(glob) && glob[i+n] == '*' {
				n++
			}
			atStart := i == 0 || glob[i-1] == '/'
			rest := glob[i+n:]
			switch {
			case n > 1 && atStart && rest == "":
				b.WriteString(`.*`)
			case n > 1 && atStart && rest[0] == '/':
				b.WriteString(`(?:.*/)?`)
				i++ // the slash is in it
			default:
				b.WriteString(`[^/]*`)
			}
			i += n
		case '?':
			b.WriteString(`[^/]`)
			i++
		case '[':
			class, n := bracket(glob[i:])
			if n == 0 {
				return "", false
			}
			b.WriteString(class)
			i += n
		case '\\':
			if i+1 >= len(glob) {
				return "", false
			}
			b.WriteString(quoteByte(glob[i+1]))
			i += 2
		default:
			b.WriteString(quoteByte(c))
			i++
		}
	}
	b.WriteString(`\z`)
	return b.String(), true
}

// quoteByte leaves text alone, so that bytes of UTF-8 stay together.
func quoteByte(c byte) string {
	if c >= 0x80 {
		return string([]byte{c})
	}
	return regexp.QuoteMeta(string(rune(c)))
}

// bracket reads [...] at the front of s and returns its length, 0 if it is none.
func bracket(s string) (class string, n int) {
	i := 1
	neg := i < len(s) && (s[i] == '!' || s[i] == '^')
	if neg {
		i++
	}
	var b strings.Builder
	for first := true; ; first = false {
		if i >= len(s) {
			return "", 0
		}
		if s[i] == ']' && !first {
			i++
			break
		}
		if strings.HasPrefix(s[i:], "[:") {
			end := strings.Index(s[i:], ":]")
			if end < 0 {
				return "", 0
			}
			name := s[i+2 : i+end]
			if _, err := regexp.Compile("[[:" + name + ":]]"); err != nil || strings.HasPrefix(name, "^") {
				return "", 0
			}
			b.WriteString("[:" + name + ":]")
			i += end + 2
			continue
		}
		lo, w := classByte(s[i:])
		if w == 0 {
			return "", 0
		}
		i += w
		hi := lo
		if i+1 < len(s) && s[i] == '-' && s[i+1] != ']' {
			if hi, w = classByte(s[i+1:]); w == 0 {
				return "", 0
			}
			i += 1 + w
		}
		if lo <= hi {
			fmt.Fprintf(&b, `\x{%x}-\x{%x}`, lo, hi)
		}
	}
	in := b.String()
	switch {
	case neg:
		return "[^/" + in + "]", i
	case in == "":
		return `[^\x00-\x{10ffff}]`, i
	}
	return "(?:[" + in + "])", i
}

// classByte reads one character of a bracket, which a backslash may quote.
func classByte(s string) (r rune, n int) {
	if strings.HasPrefix(s, `\`) {
		s, n = s[1:], 1
	}
	if s == "" {
		return 0, 0
	}
	r, w := utf8.DecodeRuneInString(s)
	return r, n + w
}

// readIgnore reads the patterns in a folder that is open, if there are any.
func readIgnore(dirfd int, name, base string) *rules {
	data, err := readSmall(dirfd, name, maxIgnoreFile)
	if err != nil || len(data) == 0 {
		return nil
	}
	return parseIgnore(data, base, "")
}

// readSmall reads a regular file of at most limit bytes, through no link.
func readSmall(dirfd int, path string, limit int64) ([]byte, error) {
	fd, err := openBeneath(dirfd, path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > limit {
		return nil, unix.EFBIG
	}
	return readAtMost(f, limit)
}

// outerRules are those of a repository whose root is above the tree: its
// .git/info/exclude and each .gitignore on the way down.
func outerRules(dir string) []*rules {
	var out []*rules
	up := ""
	for range 64 {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			if up == "" {
				return nil
			}
			return append(readOuter(filepath.Join(dir, ".git", "info", "exclude"), up), out...)
		}
		above := filepath.Dir(dir)
		if above == dir {
			return nil
		}
		up, dir = filepath.Base(dir)+"/"+up, above
		out = append(readOuter(filepath.Join(dir, ".gitignore"), up), out...)
	}
	return nil
}

func readOuter(path, up string) []*rules {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := readAtMost(f, maxIgnoreFile)
	if err != nil {
		return nil
	}
	return []*rules{parseIgnore(data, "", up)}
}
