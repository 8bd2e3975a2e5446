package here

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/bermhq/berm/api"
)

// An index is what a server has of a tree, with what lstat said when it was
// read, so that the next scan reads what changed and nothing else.
type index struct {
	ID     string // of the workspace, on the server
	Parent string
	Layers int
	Bytes  int64 // of the layers above the first, as they went in
	Base   string
	At     int64 // when the scan began, Unix nanoseconds

	entries []Entry
	byPath  map[string]int32
}

// slack is how much older than a scan a file must be for its stamp to prove
// something: clocks of file systems tick slowly, and some are not this host's.
const slack = 2 * time.Second

// recall fills in the place of a path, and what is known of a file whose stamp
// has not changed.
func (ix *index) recall(e *Entry) {
	if ix == nil {
		return
	}
	i, ok := ix.byPath[e.Path]
	if !ok {
		return
	}
	e.was = i + 1
	old := &ix.entries[i]
	if e.Kind != File || old.Kind != File || !old.known || old.stamp != e.stamp || max(e.stamp.mtime, e.stamp.ctime) >= ix.At-int64(slack) {
		return
	}
	e.Hash, e.Size, e.known, e.secret, e.clean = old.Hash, old.Size, true, old.secret, old.clean
}

// place is where the index has an entry, -1 for nowhere.
func (ix *index) place(e *Entry) int {
	if ix == nil {
		return -1
	}
	if n := int(e.was) - 1; n >= 0 && n < len(ix.entries) && ix.entries[n].Path == e.Path {
		return n
	}
	if n, ok := ix.byPath[e.Path]; ok {
		return int(n)
	}
	return -1
}

// find is what the index has of an entry, nil for nothing. What stayed out is
// nothing.
func (ix *index) find(e *Entry) *Entry {
	if n := ix.place(e); n >= 0 && !ix.entries[n].out {
		return &ix.entries[n]
	}
	return nil
}

const indexMagic = "bermhere1\n"

// Bits of an entry in a file.
const (
	bitKnown = 1 << iota
	bitClean
	bitSecret
	bitOut
)

func (e *Entry) bits() (bits byte) {
	if e.known {
		bits |= bitKnown
	}
	if e.clean {
		bits |= bitClean
	}
	if e.secret {
		bits |= bitSecret
	}
	if e.out {
		bits |= bitOut
	}
	return bits
}

func (ix *index) encode() []byte {
	b := make([]byte, 0, len(ix.entries)*140+4096)
	b = append(b, indexMagic...)
	for _, s := range []string{ix.ID, ix.Parent, ix.Base} {
		b = appendText(b, s)
	}
	b = binary.AppendVarint(b, int64(ix.Layers))
	b = binary.AppendVarint(b, ix.Bytes)
	b = binary.AppendVarint(b, ix.At)
	b = binary.AppendUvarint(b, uint64(len(ix.entries)))
	prev := ""
	for i := range ix.entries {
		e := &ix.entries[i]
		n := 0 // as in the entry before
		for n < len(prev) && n < len(e.Path) && prev[n] == e.Path[n] {
			n++
		}
		b = binary.AppendUvarint(b, uint64(n))
		b = appendText(b, e.Path[n:])
		prev = e.Path
		b = append(b, e.Kind, e.bits())
		b = binary.AppendUvarint(b, uint64(e.Mode))
		switch e.Kind {
		case File:
			b = binary.AppendVarint(b, e.Size)
			b = append(b, e.Hash[:]...)
		case Link:
			b = appendText(b, e.Target)
		}
		b = binary.AppendUvarint(b, e.stamp.dev)
		b = binary.AppendUvarint(b, e.stamp.ino)
		for _, v := range []int64{e.stamp.size, e.stamp.mtime, e.stamp.ctime} {
			b = binary.AppendVarint(b, v)
		}
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errIndex = errors.New("is damaged")

// decodeIndex reads what encode wrote. It is our own file; the sum finds what a
// crash or a disk did to it.
func decodeIndex(data []byte) (*index, error) {
	if len(data) < len(indexMagic)+sha256.Size || !bytes.HasPrefix(data, []byte(indexMagic)) {
		return nil, errIndex
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if have := sha256.Sum256(body); !bytes.Equal(have[:], sum) {
		return nil, errIndex
	}
	d := decoder{b: body[len(indexMagic):]}
	ix := &index{ID: d.text(), Parent: d.text(), Base: d.text()}
	ix.Layers, ix.Bytes, ix.At = int(d.varint()), d.varint(), d.varint()
	n := d.uvarint()
	if n > MaxEntries || n > uint64(len(body)) {
		return nil, errIndex
	}
	ix.entries = make([]Entry, n)
	ix.byPath = make(map[string]int32, n)
	var path []byte
	for i := range ix.entries {
		e := &ix.entries[i]
		keep := d.uvarint()
		if keep > uint64(len(path)) {
			return nil, errIndex
		}
		path = append(path[:keep], d.text()...)
		e.Path = string(path)
		head := d.take(2)
		if d.bad {
			return nil, errIndex
		}
		e.Kind, e.known, e.clean = head[0], head[1]&bitKnown != 0, head[1]&bitClean != 0
		e.secret, e.out = head[1]&bitSecret != 0, head[1]&bitOut != 0
		e.Mode = uint32(d.uvarint())
		switch e.Kind {
		case File:
			e.Size = d.varint()
			copy(e.Hash[:], d.take(sha256.Size))
		case Link:
			e.Target = d.text()
		}
		e.stamp = stamp{dev: d.uvarint(), ino: d.uvarint(), size: d.varint(), mtime: d.varint(), ctime: d.varint()}
		ix.byPath[e.Path] = int32(i)
	}
	if d.bad || len(d.b) > 0 {
		return nil, errIndex
	}
	return ix, nil
}

// A decoder takes values from a buffer; bad is set when there are none left.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	return v + uint64(d.skip(n))
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	return v + int64(d.skip(n))
}

func (d *decoder) skip(n int) int {
	if n <= 0 {
		d.bad, n = true, len(d.b)
	}
	d.b = d.b[n:]
	return 0
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad = true
		return make([]byte, max(0, min(n, 64)))
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	return string(d.take(int(n)))
}

// loadIndex reads an index; nil if there is none that is whole.
func loadIndex(path string) *index {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	ix, err := decodeIndex(data)
	if err != nil {
		return nil
	}
	return ix
}

// saveIndex replaces an index by one that is whole. It is a cache: nothing is
// lost with it but time, so nothing waits for the disk.
func saveIndex(path string, ix *index) error {
	return replaceFile(path, ix.encode())
}

func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return stateTrouble(err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return stateTrouble(err)
	}
	return nil
}

func stateTrouble(err error) error {
	return refuse(api.CodeHostFailure, "here: what is kept in the state directory: "+err.Error(), "berm --state DIR ..., with a directory that you can write")
}
