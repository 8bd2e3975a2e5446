package guest

// The protobuf wire format, as much of it as the messages need. It is written
// out here because the usual library reads its own executable at start, which
// the agent would pay for at every boot; tests compare the two.

const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// appendUint adds field num unless v is zero.
func appendUint(b []byte, num int, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendVarint(appendVarint(b, uint64(num)<<3|wireVarint), v)
}

func appendInt(b []byte, num int, v int64) []byte { return appendUint(b, num, uint64(v)) }

func appendBool(b []byte, num int, v bool) []byte {
	if !v {
		return b
	}
	return appendUint(b, num, 1)
}

// appendString adds field num unless s is empty.
func appendString(b []byte, num int, s string) []byte {
	if s == "" {
		return b
	}
	return appendElem(b, num, s)
}

// appendElem adds one element of a repeated field, empty or not.
func appendElem(b []byte, num int, s string) []byte {
	b = appendVarint(b, uint64(num)<<3|wireBytes)
	b = appendVarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBytes(b []byte, num int, s []byte) []byte {
	if len(s) == 0 {
		return b
	}
	b = appendVarint(b, uint64(num)<<3|wireBytes)
	b = appendVarint(b, uint64(len(s)))
	return append(b, s...)
}

// consumeVarint returns the value and its length, or a length of 0.
func consumeVarint(b []byte) (v uint64, n int) {
	for i := 0; i < len(b) && i < 10; i++ {
		c := b[i]
		if i == 9 && c > 1 {
			return 0, 0
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// A decoder walks the fields of one message. After a malformed field next
// returns false and bad is set.
type decoder struct {
	b   []byte
	num int // of the current field
	typ int
	v   uint64 // its value, if a number
	s   []byte // its value, if bytes; part of b
	bad bool
}

// next moves to the next field. Fields of unknown number are the caller's to
// ignore; groups, which no message uses, are malformed.
func (d *decoder) next() bool {
	if d.bad || len(d.b) == 0 {
		return false
	}
	d.v, d.s = 0, nil
	tag, n := consumeVarint(d.b)
	if n == 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		d.bad = true
		return false
	}
	d.b = d.b[n:]
	d.num, d.typ = int(tag>>3), int(tag&7)
	switch d.typ {
	case wireVarint:
		if d.v, n = consumeVarint(d.b); n == 0 {
			d.bad = true
			return false
		}
	case wireBytes:
		size, m := consumeVarint(d.b)
		if m == 0 || size > uint64(len(d.b)-m) {
			d.bad = true
			return false
		}
		n = m + int(size)
		d.s = d.b[m:n]
	case wireFixed8, wireFixed4:
		if n = 8; d.typ == wireFixed4 {
			n = 4
		}
		if len(d.b) < n {
			d.bad = true
			return false
		}
	default:
		d.bad = true
		return false
	}
	d.b = d.b[n:]
	return true
}

// A field of known number but wrong type reads as its zero value, as if absent.

func (d *decoder) bool() bool     { return d.v != 0 }
func (d *decoder) int() int       { return int(int64(d.v)) }
func (d *decoder) int64() int64   { return int64(d.v) }
func (d *decoder) string() string { return string(d.s) }
