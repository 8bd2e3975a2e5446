package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/registry"
)

// Kinds of a task.
const (
	taskPlain  = "plain"  // an archive is made one without compression, in the spool; images in it are described
	taskRoot   = "root"   // a plain archive of a root file system becomes one image
	taskLayer  = "layer"  // a layer's archive becomes the image of what it changes
	taskDebs   = "debs"   // packages are unpacked and become one image
	taskGuest  = "guest"  // what a root needs beside its layers becomes a layer
	taskSquash = "squash" // images become one
	taskLook   = "look"   // a user is looked up, nothing is made
	taskExport = "export" // images become an archive
)

// A task is what one maker does. Its files come with it, see files.
type task struct {
	Kind     string     `json:"kind"`
	Last     bool       `json:"last,omitempty"` // of a root: its user is looked up
	Prefix   string     `json:"prefix,omitempty"`
	Owner    *[2]uint32 `json:"owner,omitempty"`
	User     string     `json:"user,omitempty"`
	MaxBytes int64      `json:"max_bytes"`

	// Sent is a layer as a registry sent it; Pick is one of an archive of images,
	// counted from 1.
	Sent     *sentLayer `json:"sent,omitempty"`
	Pick     int        `json:"pick,omitempty"`
	Platform string     `json:"platform,omitempty"`
	Images   bool       `json:"images,omitempty"` // plain: the archive may be one of images

	Format   string        `json:"format,omitempty"` // export
	Template *api.Template `json:"template,omitempty"`
	Set      []byte        `json:"set,omitempty"` // of packages, as deb has it
}

// A sentLayer says what the bytes of a layer must be.
type sentLayer struct {
	DiffID string `json:"diff_id,omitempty"`
	Size   int64  `json:"size"`
}

// files are a task's descriptors.
type files struct {
	archive *os.File   // what strangers wrote; nil: nothing
	spool   *os.File   // room for what unpacks; nil: none is needed
	out     *os.File   // what is made; nil: nothing is
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
	case taskPlain:
		return t.plain(ctx, f, k.Progress)
	case taskExport:
		return m, t.export(ctx, f)
	case taskRoot, taskDebs:
		k.Whole, k.Guest = true, true
	case taskLayer:
		k.Marks, k.Guest = true, t.Last && t.Prefix == ""
	case taskGuest:
		k.Guest = true
	case taskSquash:
		k.Whole = true
	case taskLook:
	default:
		return m, errors.New("an unknown task")
	}
	done, err := t.open(&k, f)
	if err != nil {
		return m, err
	}
	defer done()
	m.Made, err = k.Write(ctx, f.out)
	return m, err
}

// plain says what an archive is, and makes it one without compression.
func (t task) plain(ctx context.Context, f files, progress func(image.Progress)) (m made, err error) {
	plain, err := image.Plain(ctx, f.archive, f.spool, t.MaxBytes, progress)
	if err != nil {
		return m, err
	}
	m.Spooled = plain == f.spool
	if !t.Images {
		return m, nil
	}
	info, err := plain.Stat()
	if err != nil {
		return m, err
	}
	img, err := pick(plain, info.Size(), t.Platform)
	if errors.Is(err, registry.ErrNoImage) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	m.Image = &found{Ref: img.Ref, Digest: img.Digest, Platform: img.Platform, Config: img.Config, Layers: len(img.Layers)}
	return m, nil
}

func pick(plain io.ReaderAt, size int64, platform string) (*registry.Image, error) {
	a, err := registry.ReadArchive(plain, size)
	if err != nil {
		return nil, err
	}
	return a.Pick("", platform)
}

// open finds the archive of a making: a layer in an archive of images, one that
// was sent, or a plain file.
func (t task) open(k *image.Making, f files) (done func(), err error) {
	done = func() {}
	if f.archive == nil {
		return done, nil
	}
	info, err := f.archive.Stat()
	if err != nil {
		return done, err
	}
	var l registry.Layer
	switch {
	case t.Kind == taskDebs:
		return done, t.unpack(k, f)
	case t.Pick > 0:
		img, err := pick(f.archive, info.Size(), t.Platform)
		if err != nil {
			return done, err
		}
		if t.Pick > len(img.Layers) {
			return done, errors.New("no such layer")
		}
		l = img.Layers[t.Pick-1]
	case t.Sent != nil:
		l = registry.Layer{DiffID: t.Sent.DiffID, Size: t.Sent.Size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(f.archive, 0, info.Size())), nil
		}}
	default:
		return done, k.Open(f.archive)
	}
	// Beside what an image may hold there are headers and padding.
	r, err := l.Tar(t.MaxBytes + t.MaxBytes/4 + 64<<20)
	if err != nil {
		return done, err
	}
	k.Archive = r
	return func() { r.Close() }, nil
}

// export writes images as an archive.
func (t task) export(ctx context.Context, f files) error {
	if t.Format == "tar" {
		return image.WriteTar(ctx, f.below, f.out)
	}
	if t.Template == nil {
		return errors.New("nothing to export")
	}
	created, err := time.Parse(time.RFC3339, t.Template.CreatedAt)
	if err != nil {
		created = time.Unix(0, 0)
	}
	e := registry.Export{Name: t.Template.Name, Platform: t.Template.Platform, Created: created, Config: t.Template.Config}
	for _, layer := range f.below {
		e.Layers = append(e.Layers, registry.ExportLayer{Tar: func(w io.Writer) error { return image.WriteLayerTar(ctx, layer, w) }})
	}
	switch t.Format {
	case "oci":
		return registry.WriteOCI(f.out, e)
	case "docker":
		return registry.WriteDocker(f.out, e)
	}
	return fmt.Errorf("unknown format %.40q", t.Format)
}

// formats are the kinds of archives that Export writes.
var formats = []string{"oci", "docker", "tar"}

func checkFormat(format string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("format %.40q is not known", format), Hint: "it is oci, docker or tar"}
}
