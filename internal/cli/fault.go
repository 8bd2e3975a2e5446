package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/bermhq/berm/api"
)

// A fault is an error as a person reads it: what, why, and what to try.
type fault struct {
	what, why, try string
}

func (f *fault) Error() string { return f.what + ": " + f.why }

var errEmpty = errors.New("is empty")

// fail says what went wrong and returns the exit code for it.
func (env *Env) fail(err error) int {
	env.explain(err)
	return exitRefused
}

// explain writes an error as `berm: WHAT: WHY` and `try: COMMAND`.
func (env *Env) explain(err error) {
	try := ""
	var f *fault
	var ae *api.Error
	switch {
	case errors.As(err, &f):
		try = f.try
	case errors.As(err, &ae):
		try = cmp.Or(ae.Hint, api.Hint(ae.Code))
	}
	fmt.Fprintf(env.Stderr, "berm: %s\n", oneLine(err.Error()))
	if ae != nil && ae.Code == api.CodeInterrupted { // whoever stopped it knows what they want
		return
	}
	fmt.Fprintf(env.Stderr, "try: %s\n", oneLine(cmp.Or(try, env.page())))
}

// page is the command that explains the verb of this command line.
func (env *Env) page() string {
	page, vs := "berm help", verbs()
	for _, a := range env.Args {
		if v, ok := findIn(vs, a); ok {
			page, vs = page+" "+a, v.subs
		}
		if vs == nil {
			break
		}
	}
	return page
}

// note writes a line that is neither an error nor a result.
func (env *Env) note(format string, args ...any) {
	fmt.Fprintf(env.Stderr, "berm: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// oneLine makes text of unknown origin harmless and one line long.
func oneLine(s string) string {
	const longest = 2000
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || misleads(r) {
			return ' '
		}
		return r
	}, s)
}

// shellLine shows arguments so that they can be pasted.
func shellLine(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,@%+") == "" {
			b.WriteString(a)
		} else {
			b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
		}
	}
	return b.String()
}

// nearest is the known word that a mistyped one was probably meant to be, or "".
func nearest(word string, known []string) string {
	best, dist := "", 3
	if len(word) < 3 {
		dist = 2
	}
	for _, k := range known {
		if d := distance(word, k); d < dist {
			best, dist = k, d
		}
	}
	return best
}

// distance is the edit distance of two short words.
func distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 99
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			prev, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, prev+cost)
		}
	}
	return row[len(b)]
}
