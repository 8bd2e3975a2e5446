package sniff

import (
	"net/netip"
	"strings"
)

// maxName is the longest name that DNS knows, without a dot at its end.
const maxName = 253

// hostName returns s in lower case if it is a name of letters, digits and
// hyphens. One whose last label is a number is an address to many a program,
// whatever it is written like, and so no name.
func hostName(s string) (string, bool) {
	if s == "" || len(s) > maxName {
		return "", false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", false
		}
		for i := range len(label) {
			if c := label[i]; !alnum(c) && c != '-' {
				return "", false
			}
		}
		last = label
	}
	if numeric(last) {
		return "", false
	}
	return strings.ToLower(s), true
}

// numeric says whether a label can be a part of an address: decimal, octal or
// hexadecimal.
func numeric(label string) bool {
	if len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x' {
		for i := 2; i < len(label); i++ {
			if !hexDigit(label[i]) {
				return false
			}
		}
		return true
	}
	for i := range len(label) {
		if c := label[i]; c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// literal says whether s is an address, in any of its spellings.
func literal(s string) bool {
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		return true
	}
	if s == "" || len(s) > maxName {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || !numeric(label) {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// tchar says whether c may be in a token of HTTP.
func tchar(c byte) bool {
	return alnum(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func token(s string) bool {
	for i := range len(s) {
		if !tchar(s[i]) {
			return false
		}
	}
	return s != ""
}
