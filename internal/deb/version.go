package deb

import (
	"cmp"
	"strings"
)

// compareVersions orders versions as `dpkg --compare-versions` does: epoch,
// upstream version, revision. It takes any string; what is no version has some
// place in the order.
func compareVersions(a, b string) int {
	ea, a := splitEpoch(a)
	eb, b := splitEpoch(b)
	if c := compareNumbers(ea, eb); c != 0 {
		return c
	}
	ua, ra := splitRevision(a)
	ub, rb := splitRevision(b)
	if c := comparePart(ua, ub); c != 0 {
		return c
	}
	return comparePart(ra, rb)
}

func splitEpoch(v string) (epoch, rest string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		return e, rest
	}
	return "", v
}

func splitRevision(v string) (upstream, revision string) {
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return v[:i], v[i+1:]
	}
	return v, ""
}

// comparePart walks both strings by turns of non-digits and digits.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !digit(a[0])) || (b != "" && !digit(b[0])) {
			if c := cmp.Compare(rank(a), rank(b)); c != 0 {
				return c
			}
			a, b = a[1:], b[1:] // same rank, not 0: both have a character
		}
		na, nb := digits(a), digits(b)
		if c := compareNumbers(a[:na], b[:nb]); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return 0
}

// rank of the first character: ~ sorts before the end, letters before the rest.
func rank(s string) int {
	switch {
	case s == "" || digit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case 'a' <= s[0] && s[0] <= 'z' || 'A' <= s[0] && s[0] <= 'Z':
		return int(s[0])
	}
	return int(s[0]) + 256
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) int {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n
}

// compareNumbers orders decimal numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}
