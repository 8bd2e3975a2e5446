package client

import (
	"fmt"
	"path"
	"strings"
	"unicode"
)

// dotted says whether a name starts with a dot; . and .. are no names.
func dotted(name string) bool { return strings.HasPrefix(name, ".") && name != "." && name != ".." }

// anyDotted says whether a part of a path is dotted.
func anyDotted(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if dotted(part) {
			return true
		}
	}
	return false
}

// hidden is the part of p, from its root on, that ends with the first dotted
// name which pattern does not write out, or "". As in shells a dot is only
// matched by a dot; folders bring nothing dotted along. Both are absolute.
func hidden(pattern, p string) string {
	parts, names := strings.Split(pattern[1:], "/"), strings.Split(strings.TrimPrefix(p, "/"), "/")
	at := make([]bool, len(parts)+1) // how much of pattern the names so far may have used up
	at[0] = true
	for n, name := range names {
		next := make([]bool, len(parts)+1)
		some := false
		for i := range at {
			if i > 0 && at[i-1] && parts[i-1] == "**" { // which may be nothing
				at[i] = true
			}
			switch {
			case !at[i]:
			case i == len(parts) || parts[i] == "**": // below a folder that was named
				next[i] = next[i] || !dotted(name)
			default:
				ok, _ := path.Match(parts[i], name)
				next[i+1] = ok && (!dotted(name) || dotted(parts[i]))
			}
		}
		for _, on := range next {
			some = some || on
		}
		if !some && dotted(name) {
			return "/" + strings.Join(names[:n+1], "/")
		}
		at = next
	}
	return ""
}

// repository is the part of p, from its start on, that ends with a name which
// git or a file system may take for .git, or "". What lies there is executed by
// the next git command that somebody runs nearby.
func repository(p string) string {
	names := strings.Split(p, "/")
	for n, name := range names {
		name, _, _ = strings.Cut(name, ":")
		name = strings.TrimRight(strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Cf, r) { // some file systems do not see these
				return -1
			}
			return unicode.ToLower(r)
		}, name), ". ")
		if name == ".git" || name == "git~1" {
			return strings.Join(names[:n+1], "/")
		}
	}
	return ""
}

func refuseRepository() *Refusal {
	return &Refusal{Rule: "out.dotgit", Reason: "is what git keeps its settings and hooks in, which are executed; it never comes out",
		Fix: "pack it into one archive inside, and bring that out"}
}

func refuseHidden(n int) *Refusal {
	names := "names that start with a dot were"
	if n == 1 {
		names = "name that starts with a dot was"
	}
	return &Refusal{Rule: "out.dot", Reason: fmt.Sprintf("%d %s left out", n, names),
		Fix: "write the dot to have them, as in --out '.NAME' or --out 'DIR/.NAME/**'"}
}

// misleads says that a rune could make a name look like another: it controls
// a terminal, or the direction of text.
func misleads(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}
