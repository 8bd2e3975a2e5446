package image

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bermhq/berm/api"
)

// A Manifest says what an image is made of. It is kept beside the image.
type Manifest struct {
	Name     string    `json:"name"`
	Template string    `json:"template"`
	Bytes    int64     `json:"bytes"`
	Inodes   int       `json:"inodes"`
	Created  time.Time `json:"created"`
	Include  []string  `json:"include,omitempty"`
	Exclude  []string  `json:"exclude,omitempty"`
	LeftOut  []string  `json:"left_out,omitempty"` // optional groups that did not fit
}

// Manifest reads the manifest of an image.
func (s *Store) Manifest(name string) (Manifest, error) {
	var m Manifest
	if !validName.MatchString(name) {
		return m, fail(api.CodeTemplateNotFound, fmt.Sprintf("no image %.80q", name), "use a template instead of an image name")
	}
	b, err := os.ReadFile(filepath.Join(s.dir, name+".json"))
	if err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

// commit writes the image under a temporary name and then gives it its own.
func (s *Store) commit(p *plan, m *meter, man Manifest) (Image, error) {
	f, err := s.temp()
	if err != nil {
		return Image{}, err
	}
	defer f.discard()
	if err := p.write(f.File, m); err != nil {
		return Image{}, err
	}
	man.Bytes, man.Inodes, man.Created = p.blocks*blockSize, len(p.nodes), time.Now().UTC().Truncate(time.Second)
	return s.keep(f, m, man, nil)
}

// keep gives an image that is complete its name.
func (s *Store) keep(f tempFile, m *meter, man Manifest, hold func(name string) error) (_ Image, err error) {
	if man.Name, err = contentName(f, man.Bytes, m); err != nil {
		return Image{}, err
	}
	if hold != nil {
		if err := hold(man.Name); err != nil {
			return Image{}, err
		}
	}
	img := Image{Name: man.Name, Path: s.Path(man.Name), Template: man.Template, Bytes: man.Bytes, Built: true, LeftOut: man.LeftOut}
	// What is there already may be in use, and is the same. Its manifest says who
	// had it made first: what is kept for one reason must not go for another.
	if info, err := os.Lstat(s.Path(man.Name)); err == nil && info.Size() == man.Bytes && info.Mode().IsRegular() {
		if _, err := s.Manifest(man.Name); err == nil {
			now := time.Now()
			return img, os.Chtimes(s.Path(man.Name), now, now)
		}
	}
	if err := f.Chmod(0o444); err != nil {
		return Image{}, err
	}
	if err := s.writeJSON(filepath.Join(s.dir, man.Name+".json"), man); err != nil {
		return Image{}, err
	}
	return img, os.Rename(f.Name(), s.Path(man.Name))
}

// writeJSON replaces a small file in one step.
func (s *Store) writeJSON(path string, v any) error {
	f, err := s.temp()
	if err != nil {
		return err
	}
	defer f.discard()
	e := json.NewEncoder(f)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
