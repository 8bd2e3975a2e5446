package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds on what is read. A whole run is a few hundred kilobytes.
const (
	maxDocument = 8 << 20
	maxDepth    = 12
	maxNodes    = 400_000
)

// readTree reads JSON that everybody reads alike: valid UTF-8, no name twice in
// one object, numbers that fit.
func readTree(doc []byte) (any, error) {
	switch {
	case len(doc) > maxDocument:
		return nil, fmt.Errorf("it is larger than %d MiB", maxDocument>>20)
	case !utf8.Valid(doc):
		return nil, errors.New("it is not UTF-8")
	case !json.Valid(doc):
		return nil, errors.New("it is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	r := reader{d: d}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the document")
	}
	return v, nil
}

type reader struct {
	d     *json.Decoder
	nodes int
}

func (r *reader) value(depth int) (any, error) {
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		return nil, errors.New("it is too large or too deep")
	}
	t, err := r.d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(string(t), 64)
		if err != nil || math.Abs(f) > 1<<53 { // beyond that, not all readers read the same
			return nil, fmt.Errorf("the number %.40s does not fit", t)
		}
		return f, nil
	case json.Delim:
		if t == '[' {
			return r.list(depth)
		}
		return r.object(depth)
	}
	return t, nil
}

func (r *reader) list(depth int) (any, error) {
	out := []any{}
	for r.d.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := r.d.Token()
	return out, err
}

func (r *reader) object(depth int) (any, error) {
	out := map[string]any{}
	for r.d.More() {
		t, err := r.d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if _, twice := out[name]; twice || !ok {
			return nil, fmt.Errorf("%.60q is there twice", name)
		}
		if out[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	_, err := r.d.Token()
	return out, err
}

// canonical appends the one spelling of a tree, as RFC 8785 has it. ascii spells
// all that is not printable ASCII as escapes, which says the same.
func canonical(b []byte, v any, ascii bool) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case float64:
		return appendNumber(b, v)
	case string:
		return appendString(b, v, ascii)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = canonical(b, e, ascii)
		}
		return append(b, ']')
	case map[string]any:
		names := make([]string, 0, len(v))
		for n := range v {
			names = append(names, n)
		}
		slices.SortFunc(names, func(a, c string) int { return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(c))) })
		b = append(b, '{')
		for i, n := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, n, ascii), ':')
			b = canonical(b, v[n], ascii)
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("no JSON: %T", v)) // readTree makes no others
}

// appendNumber spells a number as ECMAScript does.
func appendNumber(b []byte, f float64) []byte {
	if f == 0 {
		return append(b, '0') // -0 too
	}
	form, abs := byte('f'), math.Abs(f)
	if abs < 1e-6 || abs >= 1e21 {
		form = 'e'
	}
	n := len(b)
	b = strconv.AppendFloat(b, f, form, -1, 64)
	if k := len(b); form == 'e' && k-n >= 4 && b[k-2] == '0' && (b[k-3] == '-' || b[k-3] == '+') { // e-09 is e-9
		b[k-2] = b[k-1]
		b = b[:k-1]
	}
	return b
}

func appendString(b []byte, s string, ascii bool) []byte {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	b = append(b, '"')
	for _, r := range s {
		switch e, is := short[r]; {
		case is:
			b = append(b, e...)
		case r < ' ', ascii && r > '~' && r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		case ascii && r > '~':
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
