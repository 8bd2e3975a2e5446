package template

import (
	"context"
	"errors"
	"io"
	"os"
)

// Export writes a template as an archive: an OCI layout, what docker load takes,
// or one root file system. Its images were made from what strangers wrote, so a
// maker reads them.
func (s *Store) Export(ctx context.Context, name, format string, out io.Writer) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	r, ok := s.find(name)
	if !ok {
		return notFound(name)
	}
	p, err := s.pin()
	if err != nil {
		return s.broken("export", err)
	}
	defer p.release()
	if err := p.add(r.Root.Layers...); err != nil {
		return s.broken("export", err)
	}
	below, done, err := s.open(r.Root.Layers)
	if err != nil {
		return err
	}
	defer done()
	from, to, err := os.Pipe()
	if err != nil {
		return s.broken("export", err)
	}
	defer from.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, from)
		if err != nil { // nobody takes it: no more need be made
			cancel(err)
			from.Close()
		}
		copied <- err
	}()
	_, err = s.make(ctx, task{Kind: taskExport, Format: format, Template: &r.Template, MaxBytes: 1 << 40}, files{out: to, below: below}, nil)
	to.Close()
	cerr := <-copied
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if err == nil {
		err = cerr
	}
	return s.broken("export", err)
}
