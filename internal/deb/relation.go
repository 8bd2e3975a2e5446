package deb

import (
	"fmt"
	"slices"
	"strings"
)

// A relation is one alternative of a dependency, or one entry of Provides.
type relation struct {
	name    string
	arch    string // after the colon: any, native, an architecture; "" without
	op      string // << <= = >= >>; "" is any version
	version string
}

func (r relation) String() string {
	s := r.name
	if r.arch != "" {
		s += ":" + r.arch
	}
	if r.op != "" {
		s += " (" + r.op + " " + r.version + ")"
	}
	return s
}

// alternatives are relations of which one is enough, the preferred one first.
type alternatives []relation

func (a alternatives) String() string {
	var parts []string
	for _, r := range a {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, " | ")
}

// parseRelations reads a field of the kind of Depends for one architecture;
// alternatives that are for others are left out.
func parseRelations(text, arch string) ([]alternatives, error) {
	var all []alternatives
	for group := range strings.SplitSeq(text, ",") {
		var alts alternatives
		for one := range strings.SplitSeq(group, "|") {
			if strings.TrimSpace(one) == "" {
				continue
			}
			r, here, err := parseRelation(strings.TrimSpace(one), arch)
			if err != nil {
				return nil, err
			}
			if here {
				alts = append(alts, r)
			}
		}
		if len(alts) > 0 {
			all = append(all, alts)
		}
	}
	return all, nil
}

// parseRelation reads `name[:arch] [(op version)] [[arch ...]] [<profile ...>]`.
func parseRelation(text, arch string) (r relation, here bool, err error) {
	bad := func() (relation, bool, error) {
		return relation{}, false, fmt.Errorf("%w: %q is no relation", errControl, short(text))
	}
	end := strings.IndexAny(text, " \t\n([<")
	if end < 0 {
		end = len(text)
	}
	r.name, r.arch, _ = strings.Cut(text[:end], ":")
	if !packageName(r.name) {
		return bad()
	}
	here = true
	for rest := strings.TrimSpace(text[end:]); rest != ""; rest = strings.TrimSpace(rest) {
		open := strings.IndexByte("([<", rest[0])
		if open < 0 {
			return bad()
		}
		shut := strings.IndexByte(rest, ")]>"[open])
		if shut < 0 || rest[0] == '<' {
			return bad() // build profiles have no place in a binary package
		}
		inner := strings.TrimSpace(rest[1:shut])
		if rest[0] == '[' {
			here = archListed(strings.Fields(inner), arch)
		} else {
			n := 0
			for n < len(inner) && strings.IndexByte("<>=", inner[n]) >= 0 {
				n++
			}
			r.op, r.version = inner[:n], strings.TrimSpace(inner[n:])
			switch r.op {
			case "<": // the old spelling, and what dpkg takes it for
				r.op = "<="
			case ">":
				r.op = ">="
			}
			if !slices.Contains([]string{"<<", "<=", "=", ">=", ">>"}, r.op) || !validVersion(r.version) {
				return bad()
			}
		}
		rest = rest[shut+1:]
	}
	return r, here, nil
}

func archListed(list []string, arch string) bool {
	listed, negative := false, false
	for _, a := range list {
		name, not := strings.CutPrefix(a, "!")
		negative = negative || not
		listed = listed || name == arch || name == "any" || name == "linux-any"
	}
	return listed != negative
}

// packageName says whether a name is one that policy allows; a name becomes a
// path, so there is nothing lenient here.
func packageName(s string) bool {
	if len(s) < 2 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || digit(c) || i > 0 && (c == '+' || c == '-' || c == '.') {
			continue
		}
		return false
	}
	return true
}

func validVersion(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || digit(c) || strings.IndexByte(".+-~:_", c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// admits says whether a version is in the range of a relation.
func (r relation) admits(version string) bool {
	c := 0
	if r.op != "" {
		c = compareVersions(version, r.version)
	}
	switch r.op {
	case "<<":
		return c < 0
	case "<=":
		return c <= 0
	case "=":
		return c == 0
	case ">=":
		return c >= 0
	case ">>":
		return c > 0
	}
	return true
}
