package policy

import "strings"

// plainPath says whether every server takes a path of a request for the same:
// no escapes, no empty or dotted segments, no parameters, nothing but the plain
// characters of a path. What is not plain is held to be under no prefix where
// that would allow, and under all of them where that would deny.
func plainPath(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for i := 0; i < len(p); i++ {
		if c := p[i]; !alnum(c) && !strings.ContainsRune("-._~!$&'()*+,=:@/", rune(c)) {
			return false
		}
	}
	for rest, last := p[1:], false; !last; {
		segment, after, more := strings.Cut(rest, "/")
		if segment == "." || segment == ".." || segment == "" && more {
			return false
		}
		rest, last = after, !more
	}
	return true
}

// underPath says whether a plain path is prefix or below it. "/v1" holds
// "/v1/x" and not "/v10"; "/v1/" holds what is below and not "/v1" itself.
func underPath(p, prefix string) bool {
	if !strings.HasPrefix(p, prefix) {
		return false
	}
	return len(p) == len(prefix) || strings.HasSuffix(prefix, "/") || p[len(prefix)] == '/'
}

func alnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
