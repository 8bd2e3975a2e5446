package deb

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// A field is one of a paragraph. Lines of a value after the first keep the blank
// that they start with.
type field struct{ name, value string }

// A paragraph is a block of fields as control files have them, in their order.
type paragraph []field

// get is the value of a field, "" without it; names have no case.
func (p paragraph) get(name string) string {
	for _, f := range p {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

var errControl = errors.New("not a control file")

// cutParagraph splits the first paragraph off data. Both are empty at the end.
func cutParagraph(data []byte) (first, rest []byte) {
	for len(data) > 0 {
		line, after, _ := bytes.Cut(data, []byte("\n"))
		if len(bytes.TrimRight(line, " \t\r")) > 0 {
			break
		}
		data = after
	}
	for at := 0; at < len(data); {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		if len(bytes.TrimRight(data[at:at+end], " \t\r")) == 0 {
			return data[:at], data[at+end+1:]
		}
		at += end + 1
	}
	return data, nil
}

// parseParagraph reads one paragraph. A field twice is an error, since two
// readers may disagree on which counts.
func parseParagraph(data []byte) (paragraph, error) {
	var p paragraph
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		line = bytes.TrimRight(line, " \t\r")
		switch {
		case len(line) == 0 || line[0] == '#':
			continue
		case line[0] == ' ' || line[0] == '\t':
			if len(p) == 0 {
				return nil, fmt.Errorf("%w: starts with a continued line", errControl)
			}
			p[len(p)-1].value += "\n" + string(line)
			continue
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") || name[0] == '-' {
			return nil, fmt.Errorf("%w: %q is no field", errControl, short(line))
		}
		if len(p) > 200 {
			return nil, fmt.Errorf("%w: over 200 fields", errControl)
		}
		n := string(name)
		for _, f := range p {
			if strings.EqualFold(f.name, n) {
				return nil, fmt.Errorf("%w: field %s twice", errControl, n)
			}
		}
		p = append(p, field{n, string(bytes.TrimLeft(value, " \t"))})
	}
	return p, nil
}

// short is what of a hostile line an error may repeat.
func short[S ~string | ~[]byte](s S) string {
	if len(s) > 80 {
		return string(s[:80]) + "..."
	}
	return string(s)
}
