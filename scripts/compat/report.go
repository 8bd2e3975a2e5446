package main

import (
	"fmt"
	"slices"
	"strings"
)

// A row is one program, compared.
type row struct {
	p              program
	native, inside result
	explained      []string // reasons, each once
	unexplained    []string // lines
}

// compare finds the lines that only one side has and looks for their reasons.
func compare(p program, native, inside result) row {
	r := row{p: p, native: native, inside: inside}
	for side, err := range map[string]error{"native": native.err, "inside": inside.err} {
		if err != nil {
			r.unexplained = append(r.unexplained, side+": "+err.Error())
		}
	}
	if native.err != nil || inside.err != nil {
		return r
	}
	if native.code != inside.code {
		native.lines = append(native.lines, fmt.Sprintf("exit code %d", native.code))
		inside.lines = append(inside.lines, fmt.Sprintf("exit code %d", inside.code))
	}
	if len(native.lines) == 0 {
		r.unexplained = append(r.unexplained, "native: it printed nothing, so nothing was compared")
	}
	left, right := onlyIn(native.lines, inside.lines), onlyIn(inside.lines, native.lines)
	for _, l := range left {
		r.note("native: ", l)
	}
	for _, l := range right {
		r.note("inside: ", l)
	}
	if len(left)+len(right) == 0 && !slices.Equal(native.lines, inside.lines) {
		r.unexplained = append(r.unexplained, "the same lines in another order")
	}
	return r
}

func (r *row) note(side, line string) {
	for _, why := range r.p.why {
		if why.lines.MatchString(line) {
			if !slices.Contains(r.explained, why.text) {
				r.explained = append(r.explained, why.text)
			}
			return
		}
	}
	r.unexplained = append(r.unexplained, side+line)
}

// onlyIn is what a has more often than b.
func onlyIn(a, b []string) (out []string) {
	have := map[string]int{}
	for _, l := range b {
		have[l]++
	}
	for _, l := range a {
		if have[l]--; have[l] < 0 {
			out = append(out, l)
		}
	}
	return out
}

func (r row) summary() string {
	times := fmt.Sprintf("%6.1fs %6.1fs", r.native.took.Seconds(), r.inside.took.Seconds())
	switch {
	case len(r.unexplained) > 0:
		return times + "  DIFFERENT"
	case len(r.explained) > 0:
		return times + "  explained: " + strings.Join(r.explained, "; ")
	}
	return times + "  the same"
}

func tally(rows []row) (same, explained, bad int) {
	for _, r := range rows {
		switch {
		case len(r.unexplained) > 0:
			bad++
		case len(r.explained) > 0:
			explained++
		default:
			same++
		}
	}
	return same, explained, bad
}

// page is docs/compatibility.md.
func page(rows []row) string {
	var b strings.Builder
	same, explained, bad := tally(rows)
	fmt.Fprintf(&b, head, len(rows), same, explained)
	if bad > 0 {
		fmt.Fprintf(&b, "**%d programs differ without a reason. This page is not to be committed.**\n\n", bad)
	}
	area := ""
	for _, r := range rows {
		if r.p.area != area {
			area = r.p.area
			fmt.Fprintf(&b, "\n## %s\n\n| program | lines compared | native | inside | result |\n|---|---|---|---|---|\n", area)
		}
		result := "the same"
		switch {
		case len(r.unexplained) > 0:
			result = "**different**: " + r.unexplained[0]
		case len(r.explained) > 0:
			result = strings.Join(r.explained, " ")
		}
		fmt.Fprintf(&b, "| [%s](../scripts/compat/programs/%s.sh) | %d | %.1f s | %.1f s | %s |\n", r.p.title, r.p.name,
			len(r.native.lines), r.native.took.Seconds(), r.inside.took.Seconds(), strings.ReplaceAll(result, "|", "\\|"))
	}
	return b.String()
}

const head = `# Everyday programs, natively and inside

Written by ` + "`make compat`" + `; do not edit it by hand. Each program is a script that runs twice from one root file system, the
template ` + "`compat`" + ` (recipe beside the scripts): on the host's kernel in a private copy of that root, as uid 1000 in namespaces of
its own, and in a gVisor sandbox. What both print and how they exit is compared line by line. A line that differs is only
accepted with a reason, which is then in the table; any other fails the command.

%d programs: %d behave the same, %d differ in what the table says.

Times are of one run on two cores, sandbox included, and tell orders of magnitude: a program that computes takes as long
as outside, one that starts processes or touches many small files takes several times as long.
`
