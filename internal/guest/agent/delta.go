package agent

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How a layer of an OCI image says that something is gone.
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq" // all that was in this directory
)

// A delta writes what changed in a tree as such a layer. A directory comes with
// the first thing in it that changed, its parents before it.
type delta struct {
	ctx   context.Context
	out   *bufio.Writer
	tw    *tar.Writer
	links map[uint64]string // names of files that have more than one, by inode
	buf   []byte
}

func newDelta(ctx context.Context, dst io.Writer) *delta {
	out := bufio.NewWriterSize(dst, 96<<10)
	return &delta{ctx: ctx, out: out, tw: tar.NewWriter(out), links: make(map[uint64]string)}
}

func (d *delta) close() error {
	if err := d.tw.Close(); err != nil {
		return err
	}
	return d.out.Flush()
}

// An item is one file as it is now.
type item struct {
	name       string // below the directory that was asked for; "." is that itself
	kind       byte   // as in a tar
	mode       int64  // permission bits, setuid and the like included
	uid, gid   int
	mtime      time.Time
	size       int64
	ino, nlink uint64
	target     string // of a symlink
	major      int64  // of a device
	minor      int64
}

func (i *item) header() *tar.Header {
	h := &tar.Header{Typeflag: i.kind, Name: i.name, Mode: i.mode, Uid: i.uid, Gid: i.gid, ModTime: i.mtime,
		Linkname: i.target, Devmajor: i.major, Devminor: i.minor, Format: tar.FormatPAX}
	if i.kind == tar.TypeDir {
		h.Name += "/"
	}
	return h
}

// gone says that name is no longer there.
func (d *delta) gone(name string) error {
	dir, base := path.Split(name)
	return d.mark(dir + whiteoutPrefix + base)
}

// emptied says that of what was in the directory name nothing is left but what
// follows.
func (d *delta) emptied(name string) error { return d.mark(path.Join(name, whiteoutOpaque)) }

func (d *delta) mark(name string) error {
	return d.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX})
}

// put writes one item; f is what it holds if it is a regular file.
func (d *delta) put(i *item, f io.ReadSeeker) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(i.name), whiteoutPrefix) {
		return refusal{i.name + ": a name that begins with " + whiteoutPrefix + " cannot be told from a deletion", syscall.EINVAL}
	}
	if i.kind == tar.TypeDir {
		return d.tw.WriteHeader(i.header())
	}
	if i.nlink > 1 {
		if first, ok := d.links[i.ino]; ok {
			h := i.header()
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return d.tw.WriteHeader(h)
		}
		d.links[i.ino] = i.name
	}
	if i.kind != tar.TypeReg {
		return d.tw.WriteHeader(i.header())
	}
	if d.buf == nil {
		d.buf = make([]byte, 8*sparseStep)
	}
	if i.size >= sparseFrom {
		parts, data, err := d.parts(f, i.size)
		if err != nil {
			return err
		}
		if i.size-data >= sparseFrom/2 {
			return d.sparse(i, f, parts, data)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	h := i.header()
	h.Size = i.size
	if err := d.tw.WriteHeader(h); err != nil {
		return err
	}
	return d.copy(d.tw, f, i, i.size)
}

func (d *delta) copy(w io.Writer, f io.Reader, i *item, n int64) error {
	k, err := io.CopyBuffer(w, io.LimitReader(f, n), d.buf)
	if err == nil && k < n {
		err = refusal{i.name + ": it became shorter while it was read", syscall.EAGAIN}
	}
	return err
}

// Holes are looked for by content in files from sparseFrom bytes on, in steps:
// gVisor's files do not say where they are.
const (
	sparseFrom = 1 << 20
	sparseStep = 64 << 10
	maxParts   = 10000    // parts of one file; holes between more are sent as they are
	maxScan    = 64 << 30 // bytes of one file
)

// A part is where a sparse file has something.
type part struct{ off, n int64 }

// parts finds what f holds beside zeros, and how much that is.
func (d *delta) parts(f io.Reader, size int64) (parts []part, data int64, err error) {
	if size > maxScan {
		return nil, 0, refusal{"a file of " + strconv.FormatInt(size, 10) + " bytes", syscall.EFBIG}
	}
	for at := int64(0); at < size; {
		if err := d.ctx.Err(); err != nil {
			return nil, 0, err
		}
		n, err := io.ReadFull(f, d.buf[:min(int64(len(d.buf)), size-at)])
		for b := d.buf[:n]; len(b) > 0; {
			step := b[:min(sparseStep, len(b))]
			if !bytes.Equal(step, zeros[:len(step)]) {
				if k := len(parts) - 1; k >= 0 && (parts[k].off+parts[k].n == at || len(parts) >= maxParts) {
					parts[k].n = at + int64(len(step)) - parts[k].off
				} else {
					parts = append(parts, part{at, int64(len(step))})
				}
			}
			at += int64(len(step))
			b = b[len(step):]
		}
		if err != nil {
			break // shorter than it was: noticed when it is sent
		}
	}
	for _, p := range parts {
		data += p.n
	}
	return parts, data, nil
}

var zeros [sparseStep]byte

// sparse writes a file with holes in the GNU format 1.0, which the usual
// programs read and archive/tar does not write.
func (d *delta) sparse(i *item, f io.ReadSeeker, parts []part, data int64) error {
	if len(parts) == 0 || parts[len(parts)-1].off+parts[len(parts)-1].n < i.size {
		parts = append(parts, part{i.size, 0})
	}
	list := append(strconv.AppendInt(nil, int64(len(parts)), 10), '\n')
	for _, p := range parts {
		list = append(strconv.AppendInt(list, p.off, 10), '\n')
		list = append(strconv.AppendInt(list, p.n, 10), '\n')
	}
	list = append(list, make([]byte, padding(int64(len(list))))...)
	records := ""
	for _, r := range [][2]string{
		{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"},
		{"GNU.sparse.name", i.name}, {"GNU.sparse.realsize", strconv.FormatInt(i.size, 10)},
		{"mtime", paxTime(i.mtime)},
		{"uid", strconv.Itoa(i.uid)}, {"gid", strconv.Itoa(i.gid)},
		{"size", strconv.FormatInt(int64(len(list))+data, 10)},
	} {
		records += paxRecord(r[0], r[1])
	}
	if err := d.tw.Flush(); err != nil { // the padding of what came before
		return err
	}
	head := rawHeader("PaxHeaders.0/sparse", 'x', i, int64(len(records)))
	body := rawHeader("GNUSparseFile.0/sparse", tar.TypeReg, i, int64(len(list))+data)
	for _, b := range [][]byte{head, []byte(records), make([]byte, padding(int64(len(records)))), body, list} {
		if _, err := d.out.Write(b); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if _, err := f.Seek(p.off, io.SeekStart); err != nil {
			return err
		}
		if err := d.copy(d.out, f, i, p.n); err != nil {
			return err
		}
	}
	_, err := d.out.Write(make([]byte, padding(data)))
	return err
}

func padding(n int64) int64 { return -n & 511 }

// paxTime is a time as records have it: seconds, a fraction where there is one.
func paxTime(t time.Time) string {
	sec, nsec := t.Unix(), t.Nanosecond()
	if nsec == 0 {
		return strconv.FormatInt(sec, 10)
	}
	sign := ""
	if sec < 0 { // -1.25 is 0.75 after -2
		sign, sec, nsec = "-", -(sec + 1), 1e9-nsec
	}
	frac := strconv.Itoa(1e9 + nsec)[1:]
	return sign + strconv.FormatInt(sec, 10) + "." + frac
}

// paxRecord is "LENGTH KEY=VALUE\n", its own length included.
func paxRecord(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	for n := len(rest) + 1; ; n++ {
		if s := strconv.Itoa(n) + rest; len(s) == n {
			return s
		}
	}
}

// rawHeader is a block of the ustar format. What does not fit its fields stands
// in the records before it.
func rawHeader(name string, kind byte, i *item, size int64) []byte {
	b := make([]byte, 512)
	octal := func(at, n int, v int64) {
		if v < 0 || v >= 1<<(3*(n-1)) {
			v = 0
		}
		s := strconv.FormatInt(v, 8)
		copy(b[at:at+n-1], strings.Repeat("0", n-1-len(s))+s)
	}
	copy(b, name)
	octal(100, 8, i.mode)
	octal(108, 8, int64(i.uid))
	octal(116, 8, int64(i.gid))
	octal(124, 12, size)
	octal(136, 12, i.mtime.Unix())
	copy(b[148:156], "        ")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := int64(0)
	for _, c := range b {
		sum += int64(c)
	}
	octal(148, 7, sum)
	b[154], b[155] = 0, ' '
	return b
}

// isGone tells a file that went away while it was looked at.
func isGone(err error) bool { return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESTALE) }
