package sniff

import "bytes"

// Kind is what the first bytes of a connection can be.
type Kind int

// Kinds of connections. Raw is safe to say of anything: nothing that was raw is
// let through for the sake of a name.
const (
	More Kind = iota // not to be told yet
	TLS
	HTTP
	Raw
)

// maxLine is how long a first line is waited for that may or may not be HTTP.
const maxLine = 8 << 10

// Look says what a connection that begins with b is.
func Look(b []byte) Kind {
	if len(b) == 0 {
		return More
	}
	if b[0] == 22 {
		if len(b) > 1 && b[1] != 3 {
			return Raw
		}
		return TLS
	}
	n := 0
	for n < len(b) && n <= maxMethod && tchar(b[n]) {
		n++
	}
	switch {
	case n > maxMethod || n == 0:
		return Raw
	case n == len(b):
		return More
	case b[n] != ' ':
		return Raw
	}
	switch string(b[:n]) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI":
		return HTTP
	}
	// Another word. Mail, chat and the like begin with one, too.
	line, _, whole := bytes.Cut(b, []byte("\n"))
	switch {
	case bytes.Contains(line, []byte(" HTTP/")):
		return HTTP
	case whole || len(b) > maxLine:
		return Raw
	}
	return More
}
