package sniff

import (
	"bytes"
	"slices"
	"testing"
)

func TestFollow(t *testing.T) {
	hello := func(name string) []byte {
		ext := slices.Concat([]byte{0, 0, 0, byte(len(name) + 5), 0, byte(len(name) + 3), 0, 0, byte(len(name))}, []byte(name))
		body := slices.Concat([]byte{3, 3}, make([]byte, 32), []byte{0, 0, 2, 19, 1, 1, 0, 0, byte(len(ext))}, ext)
		return slices.Concat([]byte{1, 0, 0, byte(len(body))}, body)
	}
	record := func(kind byte, body []byte) []byte {
		return slices.Concat([]byte{kind, 3, 3, byte(len(body) >> 8), byte(len(body))}, body)
	}
	pieces := func(b []byte, n int) (out []byte) {
		for c := range slices.Chunk(b, n) {
			out = append(out, record(22, c)...)
		}
		return out
	}
	ccs, early := record(20, []byte{1}), record(23, bytes.Repeat([]byte{22}, 400))
	same, other := hello("a.test"), hello("b.test")
	for _, tt := range []struct {
		name string
		in   []byte
		ok   bool
	}{
		{"nothing", nil, true},
		{"TLS 1.3", slices.Concat(ccs, early, early), true},
		{"a second hello", slices.Concat(ccs, record(22, same), ccs, early), true},
		{"for another name", slices.Concat(ccs, record(22, other)), false},
		{"at once", record(22, other), false},
		{"behind early data", slices.Concat(early, ccs, early, record(22, other)), false},
		{"in pieces", slices.Concat(ccs, pieces(other, 3)), false},
		{"in single bytes", pieces(other, 1), false},
		{"in pieces, the same", slices.Concat(pieces(same, 5), early), true},
		{"behind an empty record", slices.Concat(record(22, nil), record(22, other)), false},
		{"behind an alert", slices.Concat(record(21, []byte{1, 90}), record(22, other)), false},
		{"a third", slices.Concat(record(22, same), record(22, other)), false},
		{"without a name", record(22, hello("")), false},
		{"not to be read", record(22, same[:20]), true}, // not complete either
		{"with something behind it", record(22, slices.Concat(same, same)), false},
		{"TLS 1.2", slices.Concat(record(22, slices.Concat([]byte{16, 0, 0, 33}, make([]byte, 33))), ccs, record(22, other)), true},
		{"TLS 1.2, resumed", slices.Concat(ccs, record(22, slices.Concat([]byte{1, 2, 3, 4, 5, 6}, make([]byte, 34))), early), true},
	} {
		for _, step := range []int{1, 7, 1 << 16} {
			f, ok := ClientHello{Name: "a.test"}.Follow(), true
			for c := range slices.Chunk(tt.in, step) {
				if ok = f.Next(c); !ok {
					break
				}
			}
			if ok != tt.ok {
				t.Errorf("%s, %d bytes at a time: %v", tt.name, step, ok)
			}
		}
	}
}
