package dockerfile

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// maxExpanded bounds what one word becomes.
const maxExpanded = 128 << 10

// Expand replaces the variables of one word as a shell would and takes its
// quotes away: $NAME, ${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word},
// ${NAME+word}, ${NAME:?word}, ${NAME?word}, ${NAME#pattern}, ##, %, %%,
// ${NAME/pattern/word} and //. get says what a variable is, and whether it is set.
func Expand(word string, escape byte, get func(string) (string, bool)) (string, error) {
	e := &expander{s: word, escape: escape, get: get}
	out, err := e.until(0, true)
	return out, err
}

// ExpandText replaces variables in the text of a here-document: quotes are text.
func ExpandText(text string, escape byte, get func(string) (string, bool)) (string, error) {
	e := &expander{s: text, escape: escape, get: get, plain: true}
	return e.until(0, true)
}

type expander struct {
	s      string
	i      int
	escape byte
	get    func(string) (string, bool)
	plain  bool // quotes are text
	depth  int
}

var errLong = errors.New("it becomes too long")

// until reads to the end, or to the byte stop, which it takes.
func (e *expander) until(stop byte, top bool) (string, error) {
	var out strings.Builder
	for e.i < len(e.s) {
		if out.Len() > maxExpanded {
			return "", errLong
		}
		c := e.s[e.i]
		switch {
		case !top && c == stop:
			e.i++
			return out.String(), nil
		case c == e.escape:
			e.i++
			switch {
			case e.i >= len(e.s):
				out.WriteByte(c)
			case e.plain && e.s[e.i] != '$' && e.s[e.i] != e.escape:
				out.WriteByte(c)
			default:
				out.WriteByte(e.s[e.i])
				e.i++
			}
		case c == '\'' && !e.plain:
			end := strings.IndexByte(e.s[e.i+1:], '\'')
			if end < 0 {
				return "", errors.New("a ' without its end")
			}
			out.WriteString(e.s[e.i+1 : e.i+1+end])
			e.i += end + 2
		case c == '"' && !e.plain:
			e.i++
			text, err := e.quoted()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		case c == '$':
			text, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		default:
			out.WriteByte(c)
			e.i++
		}
	}
	if !top {
		return "", fmt.Errorf("a %q is missing", stop)
	}
	if out.Len() > maxExpanded {
		return "", errLong
	}
	return out.String(), nil
}

func (e *expander) quoted() (string, error) {
	var out strings.Builder
	for e.i < len(e.s) {
		if out.Len() > maxExpanded {
			return "", errLong
		}
		c := e.s[e.i]
		switch {
		case c == '"':
			e.i++
			return out.String(), nil
		case c == e.escape && e.i+1 < len(e.s):
			if n := e.s[e.i+1]; n != '"' && n != '$' && n != e.escape {
				out.WriteByte(c)
			}
			out.WriteByte(e.s[e.i+1])
			e.i += 2
		case c == '$':
			text, err := e.variable()
			if err != nil {
				return "", err
			}
			out.WriteString(text)
		default:
			out.WriteByte(c)
			e.i++
		}
	}
	return "", errors.New(`a " without its end`)
}

func nameByte(c byte, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || !first && c >= '0' && c <= '9'
}

func (e *expander) name() string {
	from := e.i
	for e.i < len(e.s) && nameByte(e.s[e.i], e.i == from) {
		e.i++
	}
	return e.s[from:e.i]
}

// variable reads from a $ on.
func (e *expander) variable() (string, error) {
	e.i++
	if e.i >= len(e.s) {
		return "$", nil
	}
	if e.s[e.i] != '{' {
		name := e.name()
		if name == "" {
			return "$", nil
		}
		v, _ := e.get(name)
		return v, nil
	}
	if e.depth++; e.depth > 32 {
		return "", errors.New("variables within variables, too deep")
	}
	defer func() { e.depth-- }()
	e.i++
	name := e.name()
	if name == "" || e.i >= len(e.s) {
		return "", errors.New("${ without a name and a }")
	}
	v, set := e.get(name)
	if e.s[e.i] == '}' {
		e.i++
		return v, nil
	}
	op := e.s[e.i : e.i+1]
	e.i++
	if strings.Contains(":#%/", op) && e.i < len(e.s) && (op == ":" || e.s[e.i] == op[0]) {
		op += e.s[e.i : e.i+1]
		e.i++
	}
	return e.modify(name, v, set, op)
}

func (e *expander) modify(name, v string, set bool, op string) (string, error) {
	var pattern string
	var err error
	if op == "/" || op == "//" {
		if pattern, err = e.until('/', false); err != nil {
			return "", fmt.Errorf("${%s%s: %w", name, op, err)
		}
	}
	word, err := e.until('}', false)
	if err != nil {
		return "", fmt.Errorf("${%s%s: %w", name, op, err)
	}
	full := set && v != ""
	switch op {
	case ":-", "-":
		if full || op == "-" && set {
			return v, nil
		}
		return word, nil
	case ":+", "+":
		if full || op == "+" && set {
			return word, nil
		}
		return "", nil
	case ":?", "?":
		if full || op == "?" && set {
			return v, nil
		}
		if word == "" {
			word = "is not set"
		}
		return "", fmt.Errorf("%s: %s", name, word)
	case "#", "##", "%", "%%":
		return trim(v, word, op)
	case "/", "//":
		return replace(v, pattern, word, op == "//")
	}
	return "", fmt.Errorf("${%s%s...}: not understood", name, op)
}

// maxMatched bounds values that patterns are tried on: each cut is tried.
const maxMatched = 4096

func matches(pattern, s string) (bool, error) {
	// path.Match has no * across a slash, and a shell has: neither may see one.
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x01"), strings.ReplaceAll(s, "/", "\x01"))
	if err != nil {
		err = fmt.Errorf("%.60q is not a pattern", pattern)
	}
	return ok, err
}

func trim(v, pattern, op string) (string, error) {
	if len(v) > maxMatched || len(pattern) > maxMatched {
		return "", errLong
	}
	for n := 0; n <= len(v); n++ {
		cut := n // shortest first
		if len(op) == 2 {
			cut = len(v) - n
		}
		head, tail := v[:cut], v[cut:]
		if op[0] == '%' {
			head, tail = v[len(v)-cut:], v[:len(v)-cut]
		}
		ok, err := matches(pattern, head)
		if err != nil || ok {
			return tail, err
		}
	}
	return v, nil
}

func replace(v, pattern, word string, all bool) (string, error) {
	if len(v) > 512 || len(pattern) > 512 {
		return "", errLong
	}
	var out strings.Builder
	for i := 0; i < len(v); {
		n := -1
		for end := len(v); end > i; end-- { // the longest
			ok, err := matches(pattern, v[i:end])
			if err != nil {
				return "", err
			}
			if ok {
				n = end
				break
			}
		}
		if n < 0 {
			out.WriteByte(v[i])
			i++
			continue
		}
		out.WriteString(word)
		if i = n; !all {
			out.WriteString(v[i:])
			break
		}
	}
	return out.String(), nil
}
