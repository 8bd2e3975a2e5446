package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
)

// A table is rows for people. Every cell is made harmless: what stands in it
// may come from a sandbox, or from another user of the daemon.
type table struct{ w *tabwriter.Writer }

func newTable(f *os.File, head ...string) *table {
	t := &table{tabwriter.NewWriter(f, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.w, strings.Join(head, "\t"))
	return t
}

func (t *table) row(cells ...any) {
	for i, c := range cells {
		if i > 0 {
			t.w.Write([]byte{'\t'})
		}
		s := shownName(fmt.Sprint(c))
		if s == "" && i < len(cells)-1 {
			s = "-"
		}
		t.w.Write([]byte(s))
	}
	t.w.Write([]byte{'\n'})
}

func (t *table) end() { t.w.Flush() }

// maxShown bounds one name or cell.
const maxShown = 4 << 10

// shownName is a name of unknown origin on one line: what a terminal could
// obey, or a reader overlook, is written out.
func shownName(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + "..."
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r < 0x20, r == 0x7f:
			for j := range n {
				fmt.Fprintf(&b, "\\x%02x", s[i+j])
			}
		case r >= 0x80 && r < 0xa0, misleads(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// short is an id as a table shows it: still unique, and enough to name it by.
func short(id string) string { return id[:min(len(id), 12)] }

// tagText is tags on one line.
func tagText(tags map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, k+"="+tags[k])
	}
	return strings.Join(out, " ")
}

// since is how long ago a time of the API's was, until how long it is.
func since(t string) string { return between(t, -1) }
func until(t string) string { return between(t, 1) }

func between(t string, sign time.Duration) string {
	at, err := time.Parse(time.RFC3339Nano, t)
	if err != nil {
		return ""
	}
	return span(sign * time.Until(at))
}

// span is a duration in one unit.
func span(d time.Duration) string {
	d = max(d, 0)
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*u.unit {
			return fmt.Sprintf("%d%s", d/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// bytesText is a size with one digit behind the point.
func bytesText(n int64) string {
	if n < 0 {
		return "unlimited"
	}
	f, unit := float64(n), ""
	for _, u := range []string{"k", "m", "g", "t"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	if unit == "" || f >= 100 {
		return fmt.Sprintf("%.0f%s", f, unit)
	}
	return fmt.Sprintf("%.1f%s", f, unit)
}

// commandText is the arguments of a command, short enough for a table.
func commandText(args []string) string {
	const most = 80
	s := shownName(shellLine(args))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// stateText is the state of a sandbox, with why it ended.
func stateText(sb api.Sandbox) string {
	if sb.Ending != "" {
		return sb.State + " (" + sb.Ending + ")"
	}
	return sb.State
}
