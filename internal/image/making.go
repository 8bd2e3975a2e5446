package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bermhq/berm/api"
)

// A Making says what one image is made of. All of it is open already: who makes
// an image from what strangers wrote has no files.
type Making struct {
	// Below are the images under this one, lowest first.
	Below []*os.File
	// Archive is a tar, not compressed; nil: nothing comes on top of Below.
	Archive io.Reader
	// At is the same archive where it can be read at any place; without it
	// content is kept in Spool until the image is written.
	At    io.ReaderAt
	Spool *os.File
	Taken int64 // bytes of Spool that hold something else

	// Marks says that the archive is a layer, with OCI's marks for what is gone.
	Marks bool
	// Whole writes all of the root, with what is below, as one image.
	Whole bool
	// Guest adds what every root needs that sandboxes boot.
	Guest bool
	// Prefix is the directory that everything in the archive goes below; its
	// links lead nowhere else. "": the root.
	Prefix string
	Owner  *[2]uint32 // whose everything in the archive becomes

	User     string // who to look up when it is done, see Account; "": the agent
	MaxBytes int64  // of this image and those below; 0: DefaultMaxBytes
	Progress func(Progress)
}

// Made is what came of a Making.
type Made struct {
	Bytes   int64   `json:"bytes"`
	Inodes  int     `json:"inodes"`
	Dropped Dropped `json:"dropped,omitzero"`
	Account Account `json:"account,omitzero"`
}

// Write makes the image in out, an empty file. Errors are *api.Error with
// CodeTemplateInvalid or CodeTemplateTooLarge, the context's, or those of the
// files.
func (k Making) Write(ctx context.Context, out *os.File) (Made, error) {
	made, err := k.write(newMeter(ctx, k.Progress), out)
	return made, k.explain(err)
}

// Open makes a plain file the archive.
func (k *Making) Open(plain *os.File) error {
	info, err := plain.Stat()
	if err == nil {
		k.Archive, k.At = io.NewSectionReader(plain, 0, info.Size()), plain
	}
	return err
}

func (k *Making) limit() int64 {
	if k.MaxBytes > 0 {
		return k.MaxBytes
	}
	return DefaultMaxBytes
}

// readBelow reads the images under this one, as one tree.
func (k *Making) readBelow(m *meter) (*tree, int64, error) {
	base, total := newTree(), int64(0)
	for i, f := range k.Below {
		if err := m.ctx.Err(); err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, err
		}
		t, err := readTree(f, info.Size())
		if err != nil {
			return nil, 0, fmt.Errorf("layer %d: %w", i+1, err)
		}
		if err := base.lay(t); err != nil {
			return nil, 0, err
		}
		total += info.Size()
	}
	return base, total, nil
}

func (k *Making) write(m *meter, out *os.File) (made Made, err error) {
	base, below, err := k.readBelow(m)
	if err != nil {
		return made, err
	}
	if k.Whole {
		below = 0
	}
	left := k.limit() - below
	if left <= 0 && k.Archive != nil {
		return made, errSpool
	}
	now := base.clone()
	if k.Archive != nil {
		m.phase(PhaseScan, 0)
		if made.Dropped, err = k.unpack(now, m, left); err != nil {
			return made, err
		}
	}
	if k.Guest {
		if err := completeGuest(now); err != nil {
			return made, err
		}
	}
	if made.Account, err = findAccount(now, k.User); err != nil {
		return made, err
	}
	if out == nil {
		return made, nil
	}
	if !k.Whole && len(k.Below) > 0 {
		if now, err = now.over(base); err != nil {
			return made, err
		}
	}
	p, err := layOut(now)
	if err != nil {
		return made, err
	}
	if p.blocks*blockSize > left {
		return made, errSpool
	}
	made.Bytes, made.Inodes = p.blocks*blockSize, len(p.nodes)
	return made, p.write(out, m)
}

// unpack reads the archive into t.
func (k *Making) unpack(t *tree, m *meter, left int64) (Dropped, error) {
	u := unpacker{t: t, sp: &spool{file: k.Spool, end: k.Taken, left: left}, m: m, perm: 0o7777, marks: k.Marks, owner: k.Owner, at: k.At}
	if k.Prefix != "" {
		names, err := split(k.Prefix)
		if err != nil {
			return u.dropped, err
		}
		sub := &tree{root: t.root, count: t.count}
		for i, name := range names {
			kid := sub.root.kids[name]
			if kid == nil || !kid.isDir() {
				kid = newDir(0o755)
				if k.Owner != nil && i == len(names)-1 {
					kid.uid, kid.gid = k.Owner[0], k.Owner[1]
				}
				if err := t.put(sub.root, name, kid); err != nil {
					return u.dropped, err
				}
			}
			sub.root = kid
		}
		u.t = sub
	}
	err := u.read(k.Archive)
	return u.dropped, err
}

// explain says in a template's terms why there is no image.
func (k *Making) explain(err error) error {
	var known *api.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, errSpool):
		return fail(api.CodeTemplateTooLarge, fmt.Sprintf("it unpacks to more than the limit of %s", human(k.limit())),
			"make it smaller, or raise the limit with --template-max")
	case errors.Is(err, errTooMany):
		return fail(api.CodeTemplateTooLarge, "it has "+err.Error(), "make it smaller")
	case errors.Is(err, errNoTar):
		return fail(api.CodeTemplateInvalid, errNoTar.Error(), "give a tar archive of a root file system, one that docker save made, or an OCI layout")
	}
	return fail(api.CodeTemplateInvalid, err.Error(), "make it anew with docker, podman or tar, and check that it was copied whole")
}
