package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/registry"
)

// dirWork holds what is fetched for a Job, each in a folder that its process has
// locked.
const dirWork = "work"

// room is a folder for the time of a Job.
func (s *Store) room() (dir string, done func(), err error) {
	top := filepath.Join(s.dir, dirWork)
	if err := os.MkdirAll(top, 0o700); err != nil {
		return "", nil, err
	}
	for {
		dir, err := os.MkdirTemp(top, "job-*")
		if err != nil {
			return "", nil, err
		}
		f, err := os.Open(dir)
		if err != nil {
			continue // collected in the instant before the lock
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if _, err := os.Lstat(dir); err == nil {
				return dir, func() { os.RemoveAll(dir); f.Close() }, nil
			}
		}
		f.Close()
	}
}

// sweepRooms removes what Jobs of dead processes have left.
func (s *Store) sweepRooms() {
	top := filepath.Join(s.dir, dirWork)
	list, _ := os.ReadDir(top)
	for _, e := range list {
		dir := filepath.Join(top, e.Name())
		f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(dir)
		}
		f.Close()
	}
}

// pull fetches an image and makes a layer of each of its own. Layers are found
// again by the digest of the bytes that were sent, which was checked here, and
// not by what the image says of them.
func (w *work) pull(ctx context.Context) error {
	if w.job.Ref == "" {
		return &api.Error{Code: api.CodeBadRequest, Message: "no image was named", Hint: "berm template pull IMAGE"}
	}
	dir, done, err := w.s.room()
	if err != nil {
		return err
	}
	defer done()
	var knownErr error
	have := func(img *registry.Image) int {
		for _, l := range img.Layers {
			t, key := sent(l)
			made, name, ok, err := w.known(&t, key, w.root.Layers)
			if !ok || err != nil {
				knownErr = err
				break
			}
			w.add(t, made, name, nil)
		}
		return len(w.root.Layers)
	}
	img, err := registry.Pull(ctx, w.job.Ref, registry.Options{
		Platform: w.job.Platform, Dir: dir, MaxBytes: w.limit(), Plain: w.job.PlainHTTP,
		Credentials: registry.HostCredentials(), Progress: w.progress,
		Have: have,
	})
	if err == nil {
		err = knownErr
	}
	if err != nil {
		return err
	}
	if !saneConfig(img.Config) || len(img.Layers) > maxLayers {
		return &api.Error{Code: api.CodeTemplateInvalid, Message: "the configuration of the image is longer than any real one, or broken", Hint: "use another image"}
	}
	w.t.Source, w.t.Digest, w.t.Platform, w.t.Config = img.Ref, img.Digest, img.Platform, img.Config
	for i := len(w.root.Layers); i < len(img.Layers); i++ {
		w.item = fmt.Sprintf("layer %d of %d", i+1, len(img.Layers))
		if err := w.sent(ctx, img.Layers[i]); err != nil {
			return about("image "+w.job.Ref+", "+w.item, err)
		}
	}
	w.item = ""
	return w.one(ctx, task{Kind: taskGuest, Last: true}, nil, "guest")
}

// about has an error say which part of which image it is of.
func about(what string, err error) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	if named.Message = what + ": " + e.Message; e.Code == api.CodeTemplateTooLarge {
		named.Hint = "use a smaller image"
	}
	return &named
}

func (w *work) sent(ctx context.Context, l registry.Layer) error {
	r, err := l.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	f, ok := r.(*os.File)
	if !ok {
		return fmt.Errorf("layer %s is no file", l.Digest)
	}
	t, key := sent(l)
	return w.one(ctx, t, f, key)
}

// sent is the making of a layer that was fetched, and what it is known by.
func sent(l registry.Layer) (task, string) {
	return task{Kind: taskLayer, Sent: &sentLayer{l.DiffID, l.Size}}, "sent " + l.Digest
}
