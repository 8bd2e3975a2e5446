package guest

import (
	"context"
	"errors"
	"io"
	"syscall"
)

// simple makes a call that has no data, only a reply.
func (c *Client) simple(ctx context.Context, method int, op, path string, body []byte) (*call, error) {
	ca, err := c.open(ctx, method, body)
	if err != nil {
		return nil, err
	}
	if err := ca.wait(ctx); err != nil {
		return nil, err
	}
	return ca, ca.err(op, path)
}

// Stat describes one entry; a symlink is not followed.
func (c *Client) Stat(ctx context.Context, path string) (FileInfo, error) {
	r := FileRequest{Path: path}
	ca, err := c.simple(ctx, MethodStat, "stat", path, r.Append(nil))
	if err != nil {
		return FileInfo{}, err
	}
	var fi FileInfo
	if !fi.Decode(ca.reply.Body) {
		return FileInfo{}, c.lie("malformed file information")
	}
	return fi, nil
}

// List describes what is below dir, depth levels deep (0 means 1), at most
// limit entries (0 means 10000), sorted within each directory.
func (c *Client) List(ctx context.Context, dir string, depth, limit int) ([]FileInfo, error) {
	return c.entries(ctx, MethodList, "list", FileRequest{Path: dir, Depth: max(depth, 1), Limit: int64(limit)})
}

// Glob describes the regular files, directories and links that match pattern,
// an absolute path in which ** stands for any number of levels.
func (c *Client) Glob(ctx context.Context, pattern string, limit int) ([]FileInfo, error) {
	return c.entries(ctx, MethodGlob, "glob", FileRequest{Path: pattern, Limit: int64(limit)})
}

func (c *Client) entries(ctx context.Context, method int, op string, r FileRequest) ([]FileInfo, error) {
	if r.Limit <= 0 {
		r.Limit = 10000
	}
	ca, err := c.open(ctx, method, r.Append(nil))
	if err != nil {
		return nil, err
	}
	defer ca.cancel()
	var out []FileInfo
	room := r.Limit<<10 + maxGuestString // bytes of all entries
	for es := (entries{ca: ca}); ; {
		b, err := es.next(ctx)
		if err == io.EOF {
			return out, ca.err(op, r.Path)
		}
		if err != nil {
			return nil, err
		}
		if room -= int64(len(b)); room < 0 {
			return nil, &Error{Op: op, Path: r.Path, Errno: int(syscall.EFBIG), Text: "too much to list; ask for fewer entries or less depth"}
		}
		var fi FileInfo
		if !fi.Decode(b) || int64(len(out)) >= r.Limit {
			return nil, c.lie("malformed list of files")
		}
		out = append(out, fi)
	}
}

// entries takes messages off a call's data, each behind its length.
type entries struct {
	ca   *call
	b    []byte // not yet taken
	part []byte // the beginning of one that has not arrived whole
}

// next returns one message, valid until the next; io.EOF after the reply.
func (e *entries) next(ctx context.Context) ([]byte, error) {
	for {
		if size, n := consumeVarint(e.b); n > 0 && size > maxGuestString || n == 0 && len(e.b) >= 10 {
			return nil, e.ca.c.lie("entry too long")
		} else if n > 0 && len(e.b)-n >= int(size) {
			m := e.b[n : n+int(size)]
			e.b = e.b[n+int(size):]
			return m, nil
		}
		e.part = append(e.part[:0], e.b...) // at most one entry
		_, b, err := e.ca.next(ctx)
		if err == nil {
			if e.b = b; len(e.part) > 0 {
				e.part = append(e.part, b...)
				e.b = e.part
			}
			continue
		}
		if e.b = e.part; err == io.EOF && len(e.part) > 0 {
			return nil, e.ca.c.lie("half an entry")
		}
		return nil, err
	}
}

// ReadFile opens a regular file, not following a symlink in the last place, and
// fails with EFBIG if it has more than maxBytes (0 means no bound). The reader
// returns io.EOF only if the guest said that this was all.
func (c *Client) ReadFile(ctx context.Context, path string, maxBytes int64) (io.ReadCloser, error) {
	r := FileRequest{Path: path, Limit: max(maxBytes, 0)}
	return c.download(ctx, MethodRead, "read", path, r.Append(nil), maxBytes)
}

// TarOut reads the named entries below dir, whole trees, as a tar stream. Names
// are relative to dir and stay below it.
func (c *Client) TarOut(ctx context.Context, dir string, paths []string) (io.ReadCloser, error) {
	r := FileRequest{Path: dir, Paths: paths}
	return c.download(ctx, MethodTarOut, "tar out", dir, r.Append(nil), 0)
}

// Changes reads what was written below dir since the guest began, as a tar
// stream with names below dir, in the form of a layer of an OCI image: .wh.NAME
// stands for what is gone, .wh..wh..opq in a directory for all that was in it.
// It fails with EOPNOTSUPP in a guest that does not keep apart what is written,
// and with ENOSYS in one that is older than this.
func (c *Client) Changes(ctx context.Context, dir string) (io.ReadCloser, error) {
	r := FileRequest{Path: dir}
	return c.download(ctx, MethodChanges, "changes of", dir, r.Append(nil), 0)
}

// A download is the data of one call as a reader.
type download struct {
	ctx      context.Context
	ca       *call
	op, path string
	b        []byte
	left     int64 // bytes still wanted; -1 for no bound
	err      error
}

func (c *Client) download(ctx context.Context, method int, op, path string, body []byte, limit int64) (io.ReadCloser, error) {
	ca, err := c.open(ctx, method, body)
	if err != nil {
		return nil, err
	}
	d := &download{ctx: ctx, ca: ca, op: op, path: path, left: limit}
	if limit <= 0 {
		d.left = -1
	}
	if d.fill(); d.err != nil && d.err != io.EOF {
		ca.cancel()
		return nil, d.err
	}
	return d, nil
}

func (d *download) fill() {
	_, b, err := d.ca.next(d.ctx)
	switch {
	case err == io.EOF:
		if d.err = d.ca.err(d.op, d.path); d.err == nil {
			d.err = io.EOF
		}
	case err != nil:
		d.err = err
	case d.left >= 0 && int64(len(b)) > d.left:
		d.err = d.ca.c.lie("more data than was asked for")
	default:
		d.b = b
		if d.left >= 0 {
			d.left -= int64(len(b))
		}
	}
}

func (d *download) Read(p []byte) (int, error) {
	for len(d.b) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		d.fill()
	}
	n := copy(p, d.b)
	d.b = d.b[n:]
	return n, nil
}

// WriteTo hands the chunks on without another copy.
func (d *download) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if len(d.b) > 0 {
			k, err := w.Write(d.b)
			n += int64(k)
			if d.b = d.b[k:]; err != nil {
				return n, err
			}
		}
		if d.err == io.EOF {
			return n, nil
		}
		if d.err != nil {
			return n, d.err
		}
		d.fill()
	}
}

func (d *download) Close() error {
	d.ca.cancel()
	if d.err == nil {
		d.b, d.err = nil, ErrClosed
	}
	return nil
}

// KeepMode goes with a mode for WriteFile: a regular file that is replaced keeps
// its own mode and owner.
const KeepMode = 1 << 31

// WriteFile makes or replaces a regular file with all of r, parents included,
// owned by uid and gid. The name appears only when the content is complete.
func (c *Client) WriteFile(ctx context.Context, path string, mode uint32, uid, gid uint32, r io.Reader) error {
	q := FileRequest{Path: path, Mode: mode &^ KeepMode, UID: uid, GID: gid, Keep: mode&KeepMode != 0}
	return c.push(ctx, MethodWrite, "write", path, q.Append(nil), r)
}

// TarIn unpacks a tar stream below dir, which is made if need be. Nothing lands
// outside, owners become uid and gid, setuid bits are dropped, devices refused.
func (c *Client) TarIn(ctx context.Context, dir string, uid, gid uint32, r io.Reader) error {
	q := FileRequest{Path: dir, UID: uid, GID: gid}
	return c.push(ctx, MethodTarIn, "tar in", dir, q.Append(nil), r)
}

// TarKeep is TarIn with the owners and all mode bits that the archive says;
// what it says nothing about is root's.
func (c *Client) TarKeep(ctx context.Context, dir string, r io.Reader) error {
	q := FileRequest{Path: dir, Keep: true}
	return c.push(ctx, MethodTarIn, "tar in", dir, q.Append(nil), r)
}

func (c *Client) push(ctx context.Context, method int, op, path string, body []byte, r io.Reader) error {
	ca, err := c.open(ctx, method, body)
	if err != nil {
		return err
	}
	if err := ca.upload(ctx, r); err != nil {
		ca.cancel()
		if c.Err() != nil {
			return c.Err()
		}
		return err
	}
	if err := ca.wait(ctx); err != nil {
		return err
	}
	return ca.err(op, path)
}

// Mkdir makes a directory and its parents; one that exists is left as it is.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, uid, gid uint32) error {
	r := FileRequest{Path: path, Mode: mode, UID: uid, GID: gid}
	_, err := c.simple(ctx, MethodMkdir, "mkdir", path, r.Append(nil))
	return err
}

// Own is Mkdir for a directory that may be there already: then it gets the mode
// and the owner.
func (c *Client) Own(ctx context.Context, path string, mode uint32, uid, gid uint32) error {
	r := FileRequest{Path: path, Mode: mode, UID: uid, GID: gid, Keep: true}
	_, err := c.simple(ctx, MethodMkdir, "mkdir", path, r.Append(nil))
	return err
}

// Move renames, replacing a file of the new name.
func (c *Client) Move(ctx context.Context, from, to string) error {
	r := FileRequest{Path: from, To: to}
	_, err := c.simple(ctx, MethodMove, "move", from, r.Append(nil))
	return err
}

// Remove deletes a file or an empty directory, or with recursive a whole tree.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	r := FileRequest{Path: path, Recursive: recursive}
	_, err := c.simple(ctx, MethodRemove, "remove", path, r.Append(nil))
	return err
}

// Usage asks what the guest uses now.
func (c *Client) Usage(ctx context.Context) (Usage, error) {
	ca, err := c.simple(ctx, MethodUsage, "usage", "", nil)
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	if !u.Decode(ca.reply.Body) {
		return Usage{}, c.lie("malformed usage")
	}
	return u, nil
}

// Control gives the guest a name, the time and fresh randomness.
func (c *Client) Control(ctx context.Context, id Identity) error {
	_, err := c.simple(ctx, MethodControl, "control", id.Hostname, id.Append(nil))
	return err
}

// IsRefusal tells an answer of a working guest from a broken stream.
func IsRefusal(err error) bool {
	var e *Error
	return errors.As(err, &e)
}
