package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bermhq/berm/api"
)

// spooled is in as a file: itself if it is one, else its bytes, at most most of
// them, in a file without a name. Nothing of it is looked at. nil is nothing.
func (s *Store) spooled(ctx context.Context, in io.Reader, most int64, say func(api.TemplateProgress)) (*os.File, func(), error) {
	if in == nil {
		return nil, nil, &api.Error{Code: api.CodeBadRequest, Message: "no archive was given", Hint: "berm help template"}
	}
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return f, func() {}, nil
		}
	}
	f, err := s.images.Scratch()
	if err != nil {
		return nil, nil, err
	}
	buf := make([]byte, 256<<10)
	for total := int64(0); ; {
		n, err := in.Read(buf)
		if total += int64(n); total > most {
			f.Close()
			return nil, nil, &api.Error{Code: api.CodeTemplateTooLarge, Message: fmt.Sprintf("the archive is more than the limit of %d MiB", most>>20),
				Hint: "make it smaller, or raise the limit with --template-max"}
		}
		if _, werr := f.Write(buf[:n]); werr != nil {
			f.Close()
			return nil, nil, werr
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == io.EOF {
			return f, func() { f.Close() }, nil
		}
		if err != nil {
			f.Close()
			return nil, nil, unread(ctx, err)
		}
		say(api.TemplateProgress{Phase: "download", Done: total})
	}
}

func unread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{Code: api.CodeTemplateInvalid, Message: "the archive could not be read to its end: " + err.Error(), Hint: "send it again"}
}

// open opens images, to be read.
func (s *Store) open(names []string) (fs []*os.File, done func(), err error) {
	done = func() {
		for _, f := range fs {
			f.Close()
		}
	}
	for _, name := range names {
		f, err := os.Open(s.images.Path(name))
		if err != nil {
			done()
			return nil, nil, &api.Error{Code: api.CodeTemplateNotFound, Message: "a layer of it is not here any more", Hint: "make it again"}
		}
		fs = append(fs, f)
	}
	return fs, done, nil
}
