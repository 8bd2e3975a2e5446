package template

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// Kinds of a task.
const (
	taskRoot   = "root"   // an archive of a root file system becomes one image
	taskLayer  = "layer"  // a layer's archive becomes the image of what it changes
	taskGuest  = "guest"  // what a root needs beside its layers becomes a layer
	taskSquash = "squash" // images become one
	taskLook   = "look"   // a user is looked up, nothing is made
)

// A task is what one maker does. Its files come with it, see files.
type task struct {
	Kind     string     `json:"kind"`
	Last     bool       `json:"last,omitempty"` // of a root: its user is looked up
	Prefix   string     `json:"prefix,omitempty"`
	Owner    *[2]uint32 `json:"owner,omitempty"`
	User     string     `json:"user,omitempty"`
	MaxBytes int64      `json:"max_bytes"`
	DiffID   string     `json:"diff_id,omitempty"` // of the plain tar of a layer, if it is known
}

// files are a task's descriptors.
type files struct {
	archive *os.File   // what strangers wrote; nil: nothing
	spool   *os.File   // room for what unpacks; nil: none is needed
	out     *os.File   // the image; nil: none is made
	below   []*os.File // images, lowest first
}

// run does a task. It is the part of a maker that reads what strangers wrote.
func (t task) run(ctx context.Context, f files, progress func(api.TemplateProgress)) (m made, err error) {
	k := image.Making{Below: f.below, Prefix: t.Prefix, Owner: t.Owner, User: t.User, MaxBytes: t.MaxBytes, Spool: f.spool}
	if progress != nil {
		k.Progress = func(p image.Progress) {
			progress(api.TemplateProgress{Phase: p.Phase, Done: p.Done, Total: p.Total})
		}
	}
	switch t.Kind {
	case taskRoot:
		k.Whole, k.Guest = true, true
	case taskLayer:
		k.Marks, k.Guest = true, t.Last && t.Prefix == ""
	case taskGuest:
		k.Guest = true
	case taskSquash:
		k.Whole = true
	case taskLook:
		m.Made, err = k.Write(ctx, nil)
		return m, err
	default:
		return m, errors.New("an unknown task")
	}
	if f.archive != nil {
		if _, err := f.archive.Seek(0, io.SeekStart); err != nil {
			return m, err
		}
		if err := k.Open(f.archive, t.DiffID); err != nil {
			return m, err
		}
	}
	m.Made, err = k.Write(ctx, f.out)
	return m, err
}
