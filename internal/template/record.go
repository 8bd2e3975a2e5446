package template

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// What a Store knows lies beside the images:
//
//	names/<digest>.json  a template by its name
//	keys/<digest>.json   what a Job with a Key made; its time is that of its last use
//	chains/<digest>.json from what a layer was made of, and on what, to its image
//	pins/*               images of Jobs that are under way, each locked by its process
const (
	dirNames  = "names"
	dirKeys   = "keys"
	dirChains = "chains"
	dirPins   = "pins"
)

// maxRecord bounds what is read of one record.
const maxRecord = 1 << 20

// A record is a root that is kept, by a name or by a key.
type record struct {
	Name     string       `json:"name,omitempty"`
	Key      string       `json:"key,omitempty"`
	Template api.Template `json:"template"`
	Root     image.Root   `json:"root"`
}

// A chain is one layer that was made before.
type chain struct {
	Layer string     `json:"layer"`
	Made  image.Made `json:"made,omitzero"`
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,127}$`)

// checkName refuses what cannot be a template's name.
func checkName(name string) error {
	if validName.MatchString(name) {
		return nil
	}
	return &api.Error{Code: api.CodeTemplateInvalid, Message: fmt.Sprintf("%.140q is no name of a template", name),
		Hint: "a letter or digit, then up to 127 of letters, digits and . _ / : @ -"}
}

// digest is a file name for anything.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)))
}

func (s *Store) path(dir string, parts ...string) string {
	return filepath.Join(s.dir, dir, digest(parts...)+".json")
}

// read reads one record; false if there is none that can be read.
func read(path string, v any) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > maxRecord {
		return false
	}
	return json.NewDecoder(f).Decode(v) == nil
}

// write replaces one record in one step, and sees it on disk.
func (s *Store) write(path string, v any) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// each calls f for every record of a kind, with its path and time.
func each[T any](s *Store, dir string, f func(path string, used time.Time, v T)) error {
	list, err := os.ReadDir(filepath.Join(s.dir, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		path := filepath.Join(s.dir, dir, e.Name())
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if !strings.HasSuffix(e.Name(), ".json") {
			if time.Since(info.ModTime()) > time.Hour {
				os.Remove(path) // of a process that died while it wrote
			}
			continue
		}
		var v T
		if !read(path, &v) {
			continue
		}
		f(path, info.ModTime(), v)
	}
	return nil
}

// find is the record of a name, or of a shorter way to say it.
func (s *Store) find(name string) (record, bool) {
	for _, n := range spellings(name) {
		var r record
		if read(s.path(dirNames, n), &r) && r.Name == n {
			return r, true
		}
	}
	return record{}, false
}

// spellings are the names that one may stand for: as it is first, then as image
// references are written in short and in full. No image stands for the host's
// own tools, and nothing but its own name leads to a workspace.
func spellings(name string) []string {
	out := []string{name}
	if name == image.Host || strings.HasPrefix(name, api.TreePrefix) {
		return out
	}
	add := func(n string) {
		if strings.HasPrefix(n, api.TreePrefix) {
			return
		}
		for _, have := range out {
			if have == n {
				return
			}
		}
		out = append(out, n)
	}
	tagged := func(n string) []string {
		base := n[strings.LastIndexByte(n, '/')+1:]
		if strings.Contains(base, ":") || strings.Contains(n, "@") {
			if short, ok := strings.CutSuffix(n, ":latest"); ok {
				return []string{n, short}
			}
			return []string{n}
		}
		return []string{n, n + ":latest"}
	}
	for _, n := range tagged(name) {
		add(n)
		short := strings.TrimPrefix(strings.TrimPrefix(n, "docker.io/"), "library/")
		add(short)
		if first, _, ok := strings.Cut(short, "/"); !ok {
			add("docker.io/library/" + short)
		} else if !strings.ContainsAny(first, ".:") && first != "localhost" {
			add("docker.io/" + short)
		}
	}
	return out
}
