package sniff

import (
	"bytes"
	"strconv"
)

// Bounds of what is not data in a chunked body.
const (
	maxChunkLine = 1 << 10
	maxTrailers  = 8 << 10
)

// A Body says where the body of a request ends. The zero value is at its end.
type Body struct {
	left     int64 // of the data
	chunked  bool
	after    bool // the CRLF behind a chunk's data comes next
	trailers bool // the last chunk was there
	trailed  int  // bytes and fields of trailers
	fields   int
}

// Body returns the body that follows r's head.
func (r *Request) Body() Body { return Body{left: r.length, chunked: r.chunked} }

// Done says whether nothing more of the body comes.
func (b *Body) Done() bool { return b.left == 0 && !b.chunked }

// Next says how many of the bytes that p begins with belong to the body and are
// as they must be. 0 without an error, and not Done, means that more bytes must
// come first, behind those that are there.
func (b *Body) Next(p []byte) (n int, err error) {
	for n < len(p) && !b.Done() {
		if b.left > 0 {
			m := int(min(b.left, int64(len(p)-n)))
			if n, b.left = n+m, b.left-int64(m); b.left == 0 && b.chunked {
				b.after = true
			}
			continue
		}
		m, err := b.line(p[n:])
		if err != nil {
			return n, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

// line takes one line that is not data, if it is all there.
func (b *Body) line(p []byte) (int, error) {
	end := bytes.IndexByte(p, '\n')
	if cr := bytes.IndexByte(p, '\r'); cr >= 0 && cr+1 < len(p) && p[cr+1] != '\n' || end >= 0 && cr != end-1 || end == 0 {
		return 0, bad("a line of a chunked body does not end with CRLF")
	}
	if b.after && (p[0] != '\r' || end > 1) {
		return 0, bad("a chunk is longer than it says")
	}
	switch {
	case end > maxChunkLine || end < 0 && len(p) > maxChunkLine:
		return 0, bad("a line of more than %d bytes in a chunked body", maxChunkLine)
	case end < 0:
		return 0, nil
	}
	line := p[:end-1]
	switch {
	case b.after:
		b.after = false
	case b.trailers:
		if b.trailed += end + 1; b.trailed > maxTrailers {
			return 0, bad("trailers of more than %d bytes", maxTrailers)
		}
		if len(line) == 0 {
			*b = Body{}
			break
		}
		if b.fields++; b.fields > maxFields {
			return 0, bad("more than %d trailers", maxFields)
		}
		if err := trailer(string(line)); err != nil {
			return 0, err
		}
	default:
		size, err := chunkSize(line)
		if err != nil {
			return 0, err
		}
		if b.left = size; size == 0 {
			b.trailers = true
		}
	}
	return end + 1, nil
}

// chunkSize reads a size in hexadecimal, with nothing before it and behind it at
// most extensions.
func chunkSize(line []byte) (int64, error) {
	n := 0
	for n < len(line) && hexDigit(line[n]) {
		n++
	}
	for i, c := range line[n:] {
		if i == 0 && c != ';' || c < ' ' && c != '\t' || c >= 0x7f {
			return 0, bad("a chunk's size is not a number")
		}
	}
	size, err := strconv.ParseInt(string(line[:n]), 16, 64)
	if err != nil || n > 15 {
		return 0, bad("a chunk's size is not a number")
	}
	return size, nil
}

// trailer reads a field behind the last chunk, where none may be that says where
// a request goes or ends.
func trailer(line string) error {
	name, _, err := field(line)
	if err != nil {
		return err
	}
	switch name {
	case "host", "content-length", "transfer-encoding", "connection", "upgrade", "expect", "te", "trailer", "http2-settings":
		return bad("%s behind a body", name)
	}
	return nil
}
