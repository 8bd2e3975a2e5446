package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bermhq/berm/attack"
)

// page is docs/containment.md.
func page(targets []target, repo string) string {
	var b strings.Builder
	own := targets[0].report
	fmt.Fprintf(&b, `# What holds, measured

Written by `+"`make containment`"+`; do not edit it by hand. The cases of [attack.md](attack.md) ran in Berm and, unchanged, in sandboxes of
others, on one machine: %d cases, of %s (suite %.12s). A cell says how many cases were contained, of those that could be judged there.

`, len(own.Cases), own.Date.Format("2006-01-02"), own.Suite.SHA256)
	b.WriteString("| sandbox | " + strings.Join(attack.Families, " | ") + " | breached | not judged | does not apply |\n|---|" + strings.Repeat("---|", len(attack.Families)+3) + "\n")
	for _, t := range targets {
		if t.report == nil {
			fmt.Fprintf(&b, "| %s |%s %s | | |\n", t.title, strings.Repeat(" |", len(attack.Families)), t.missing)
			continue
		}
		for _, rung := range rungs(t.report) {
			fmt.Fprintf(&b, "| %s |%s\n", link(t), row(t.report, rung))
		}
	}
	b.WriteString(`
How to read it:

- A cap that a tool does not have is a breach here, for the host gives what the cap would have kept; the tool may leave it
  to others by design, which its notes then say. What only Berm has, like its API and what it brings out, does not apply to others.
- All of them ran as root, for that is what the suite needs to see the host. Some of the tools are meant to be run by other users, for whom
  the kernel keeps more closed.
- A canary that comes out is one that was planted, or a fact of this machine. The kernel's version is no secret; it tells which exploits fit.
- A row is a whole run. Where single cases were run again with a later build or on a quieter machine (scorepage -cases), what came of them
  stands in the place of the first result.
- No case has an exploit for a bug of the kernel. A sandbox whose programs call the host's kernel directly has all of its bugs before it.

`)
	h := own.Host
	fmt.Fprintf(&b, "The machine: %s, kernel %s, %d processors (%s), %d GiB of memory, cgroup %s.\n", cmp.Or(h.Distribution, "unknown"), h.Kernel, h.CPUs, cmp.Or(h.CPUModel, "unknown"), h.MemoryBytes>>30, h.Cgroup)
	for _, t := range targets {
		if t.report != nil {
			b.WriteString("\n" + section(t, repo))
			if t.report.Suite.SHA256 != own.Suite.SHA256 {
				fmt.Fprintf(&b, "\nMeasured with another suite than Berm's row: %d cases, %.12s.\n", len(t.report.Cases), t.report.Suite.SHA256)
			}
		}
	}
	return b.String()
}

func rungs(r *attack.Report) (out []string) {
	for _, c := range r.Cases {
		if !slices.Contains(out, c.Isolation) {
			out = append(out, c.Isolation)
		}
	}
	return out
}

func link(t target) string {
	return fmt.Sprintf("[%s](#%s)", t.title, strings.ToLower(strings.ReplaceAll(regexp.MustCompile(`[^A-Za-z0-9 -]`).ReplaceAllString(t.title, ""), " ", "-")))
}

// row has a cell for each family, and the sums.
func row(r *attack.Report, rung string) string {
	var out strings.Builder
	var all attack.Count
	for _, family := range attack.Families {
		cell := " |"
		for _, f := range r.Summary.Families {
			if f.Isolation != rung || f.Family != family {
				continue
			}
			all.Breached += f.Breached
			all.Inconclusive += f.Inconclusive
			all.NotApplicable += f.NotApplicable
			if judged := f.Contained + f.Breached; judged > 0 {
				cell = fmt.Sprintf(" %d of %d |", f.Contained, judged)
				if f.Breached > 0 {
					cell = fmt.Sprintf(" **%d** of %d |", f.Contained, judged)
				}
			}
		}
		out.WriteString(cell)
	}
	fmt.Fprintf(&out, " %d | %d | %d |", all.Breached, all.Inconclusive, all.NotApplicable)
	return out.String()
}

// section says how one target was attacked, and what was found.
func section(t target, repo string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", t.title)
	if t.version != "" {
		fmt.Fprintf(&b, "Version: %s. ", strings.TrimSpace(t.version))
	}
	fmt.Fprintf(&b, "%s\n\n    %s\n", t.notes, t.report.Command)
	var found, unsure []attack.Result
	reasons, order := map[string]int{}, []string{}
	for _, c := range t.report.Cases {
		switch {
		case c.Finding():
			found = append(found, c)
		case c.Verdict == attack.Inconclusive:
			unsure = append(unsure, c)
		case c.Verdict == attack.NotApplicable:
			if reasons[c.Evidence]++; reasons[c.Evidence] == 1 {
				order = append(order, c.Evidence)
			}
		}
	}
	table := func(head string, cases []attack.Result) {
		if len(cases) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n%s To see one again, add `--only CASE`.\n\n| case | what the program tries | what was seen from outside |\n|---|---|---|\n", head)
		for _, c := range cases {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.ID, cell(c.Goal, 160), cell(tidy(c.Evidence, repo), 240))
		}
	}
	if len(found) == 0 {
		b.WriteString("\nNothing was found.\n")
	}
	table(fmt.Sprintf("%d findings.", len(found)), found)
	table(fmt.Sprintf("%d could not be judged.", len(unsure)), unsure)
	if len(order) > 0 {
		b.WriteString("\nDoes not apply:\n\n")
		for _, reason := range order {
			fmt.Fprintf(&b, "- %d: %s\n", reasons[reason], cell(tidy(reason, repo), 160))
		}
	}
	return b.String()
}

var (
	canary = regexp.MustCompile(`berm-canary-[a-z0-9]+`)
	group  = regexp.MustCompile(`/sys/fs/cgroup/(\S*/)?berm-attack-[a-z0-9]{12}`)
	nonce  = regexp.MustCompile(`\b[a-z0-9]{26}\b`)
	number = regexp.MustCompile(`\b[0-9]{3,} (\S+) started [0-9]+`)
)

// tidy takes out of evidence what is another at each run, and of this machine.
func tidy(s, repo string) string {
	s = strings.ReplaceAll(s, repo+"/", "")
	s = strings.ReplaceAll(s, "/root/", "~/")
	s = group.ReplaceAllString(s, "/sys/fs/cgroup/...")
	s = canary.ReplaceAllString(s, "berm-canary-...")
	s = nonce.ReplaceAllString(s, "...")
	return number.ReplaceAllString(s, "$1")
}

// cell fits a text into a table.
func cell(s string, most int) string {
	if len(s) > most {
		cut := strings.LastIndexAny(s[:most], " ;")
		s = strings.ToValidUTF8(strings.TrimRight(s[:max(cut, most/2)], " ;,"), "") + " ..."
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "`", "'").Replace(s)
}
