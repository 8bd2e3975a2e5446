package here

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}

func sortSkips(s []Skip) {
	slices.SortFunc(s, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
}

// A content is a file that is being read. It has exactly size bytes: what is
// missing is zero, what is more is left.
type content struct {
	f      *os.File
	data   *bytes.Reader // instead of f, where all of it was read
	size   int64
	left   int64
	hash   hash.Hash
	before stamp
	mode   uint32
	clean  bool
	secret bool
	short  bool
}

var errGone = errors.New("is gone, or not a file any more")

// open opens a file of the tree to read it once. Small ones are read at once,
// and looked into.
func (t *Tree) open(e *Entry) (*content, error) {
	fd, err := openBeneath(t.fd(), e.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	c := &content{f: os.NewFile(uintptr(fd), e.Path), hash: sha256.New()}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		c.close()
		return nil, errGone
	}
	c.before, c.mode, c.size = stampOf(&st), st.Mode&0o777, st.Size
	if look, config := mayLook(e.Path, c.size), gitConfig(e.Path) && c.size <= maxLook; look || config {
		data := make([]byte, c.size)
		n, err := io.ReadFull(c.f, data)
		if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
			c.close()
			return nil, err
		}
		c.short = int64(n) < c.size
		data = data[:n]
		if config {
			tidy := cleanGitConfig(data)
			c.clean = !bytes.Equal(tidy, data)
			data = tidy
		} else {
			c.secret = credentialText(e.Path, data)
		}
		c.data, c.size = bytes.NewReader(data), int64(len(data))
	}
	c.left = c.size
	return c, nil
}

func (c *content) close() { c.f.Close() }

func (c *content) Read(p []byte) (n int, err error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.left)]
	if c.data != nil {
		n, err = c.data.Read(p)
	} else {
		n, err = c.f.Read(p)
	}
	if err == io.EOF && n == 0 {
		clear(p)
		n, err, c.short = len(p), nil, true
	}
	c.left -= int64(n)
	c.hash.Write(p[:n])
	return n, err
}

// note writes down what was read. If the file changed meanwhile, the next scan
// must not believe its stamp.
func (c *content) note(e *Entry) (settled bool) {
	var st unix.Stat_t
	err := unix.Fstat(int(c.f.Fd()), &st)
	settled = err == nil && stampOf(&st) == c.before && !c.short
	e.stamp, e.Mode, e.Size, e.known = c.before, c.mode, c.size, settled
	e.clean, e.secret = c.clean, c.secret
	c.hash.Sum(e.Hash[:0])
	return settled
}

// upload sends a delta as one layer.
func (s *Scan) upload(ctx context.Context, srv Server, parent string, d *delta) (api.WorkTree, int64, error) {
	pr, pw := io.Pipe()
	p := &packer{s: s, d: d, total: d.bytes}
	buf := bufio.NewWriterSize(pw, 256<<10)
	p.tw = tar.NewWriter(buf)
	done := make(chan error, 1)
	go func() {
		err := p.pack(ctx)
		if err == nil {
			err = p.tw.Close()
		}
		if err == nil {
			err = buf.Flush()
		}
		pw.CloseWithError(err)
		done <- err
	}()
	wt, err := srv.PutWorkspace(ctx, parent, pr)
	pr.CloseWithError(errors.New("the server takes no more"))
	perr := <-done
	switch {
	case err == nil && perr == nil && wt.WorkspaceID == "":
		err = errors.New("here: the server named no workspace")
	case err == nil:
		err = perr
	}
	return wt, p.sent, err
}

// A packer writes a layer.
type packer struct {
	s     *Scan
	d     *delta
	tw    *tar.Writer
	sent  int64
	total int64
}

func (p *packer) pack(ctx context.Context) error {
	for _, gone := range p.d.gone {
		if err := p.whiteout(gone); err != nil {
			return err
		}
	}
	drop := map[*Entry]bool{} // turned out to be gone
	for _, e := range p.d.change {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		in, err := p.entry(e)
		if err != nil {
			return err
		}
		if in {
			continue
		}
		drop[e] = !e.out
		if p.d.below.find(e) != nil {
			if err := p.whiteout(e.Path); err != nil {
				return err
			}
		}
	}
	if len(drop) > 0 {
		kept := p.s.now.entries[:0:0]
		for i := range p.s.now.entries {
			if e := &p.s.now.entries[i]; !drop[e] {
				kept = append(kept, *e)
			}
		}
		p.s.now.entries = kept
	}
	return nil
}

func (p *packer) whiteout(name string) error {
	return p.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(parent(name), ".wh."+base(name)), Mode: 0o600})
}

// entry writes one; in is false if it does not go in after all.
func (p *packer) entry(e *Entry) (in bool, err error) {
	h := &tar.Header{Name: e.Path, Mode: int64(e.Mode), ModTime: time.Unix(0, e.stamp.mtime), Format: tar.FormatPAX}
	switch e.Kind {
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return true, p.tw.WriteHeader(h)
	case Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
		return true, p.tw.WriteHeader(h)
	}
	c, err := p.s.t.open(e)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			p.s.now.skips = append(p.s.now.skips, Skip{e.Path, WhyUnreadable})
		}
		return false, nil
	}
	defer c.close()
	h.Typeflag, h.Mode, h.Size, h.ModTime = tar.TypeReg, int64(c.mode), c.size, time.Unix(0, c.before.mtime)
	if c.secret && !p.s.t.opt.Include.match(e.Path, false) {
		if _, err := io.Copy(io.Discard, c); err != nil {
			return false, nil
		}
		c.note(e)
		e.out = true
		return false, nil
	}
	if err := p.tw.WriteHeader(h); err != nil {
		return false, err
	}
	if _, err := io.Copy(p.tw, c); err != nil {
		return false, err
	}
	e.out = false
	if !c.note(e) {
		p.s.now.notes = append(p.s.now.notes, e.Path+" changed while it was copied")
	}
	p.sent += c.size
	if p.s.progress != nil {
		p.s.progress(p.sent, max(p.total, p.sent))
	}
	return true, nil
}
