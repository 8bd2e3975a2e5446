package here

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// How long and how much is kept of runs.
const (
	keepRuns  = 20
	keepFor   = 7 * 24 * time.Hour
	keepBytes = 4 << 30
)

// Bounds of what is kept of the contents before: enough to show them.
const (
	maxOld    = 1 << 20
	maxOldAll = 64 << 20
)

// Info says what a run was.
type Info struct {
	ID       string    `json:"id"`
	Tree     string    `json:"tree"` // the folder that went in
	Command  []string  `json:"command"`
	Template string    `json:"template"`
	Ended    time.Time `json:"ended"`
	Ending   string    `json:"ending"`
	ExitCode int       `json:"exit_code"`
	// Lost says why nothing is known of changes; "" if it is.
	Lost string `json:"lost,omitempty"`
}

// A Run is what is kept of one: what it changed in a tree, and the contents.
type Run struct {
	Info
	Changes
	dir       string
	data, old *os.File
}

// Close lets go of the contents.
func (r *Run) Close() {
	for _, f := range []*os.File{r.data, r.old} {
		if f != nil {
			f.Close()
		}
	}
}

// Keep reads what a sandbox changed in a tree that went in with these entries,
// and keeps it under the run's id, so that it can be looked at and applied later.
// changes is nil where info says that they are lost.
func (s *State) Keep(info Info, tree *Tree, before []Entry, changes io.Reader, lim Limits) (*Run, error) {
	runs := filepath.Join(s.dir, "runs")
	if err := s.make(runs); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(runs, ".new-")
	if err != nil {
		return nil, stateTrouble(err)
	}
	defer os.RemoveAll(dir) // once it has its name there is nothing to remove
	r := &Run{Info: info, dir: dir}
	if changes != nil {
		if err := r.take(tree, before, changes, lim); err != nil {
			return nil, stateTrouble(err)
		}
	}
	if err := writeJSON(filepath.Join(dir, "changes.json"), &r.Changes); err != nil {
		return nil, stateTrouble(err)
	}
	if err := writeJSON(filepath.Join(dir, "info.json"), &r.Info); err != nil {
		return nil, stateTrouble(err)
	}
	to := filepath.Join(runs, info.ID)
	if err := os.Rename(dir, to); err != nil {
		return nil, stateTrouble(err)
	}
	s.prune(info.ID)
	r.dir = to
	return r, nil
}

// take writes the contents of both sides.
func (r *Run) take(tree *Tree, before []Entry, changes io.Reader, lim Limits) error {
	data, err := os.OpenFile(filepath.Join(r.dir, "data"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer data.Close()
	buf := bufio.NewWriterSize(data, 256<<10)
	c, err := ReadChanges(changes, before, buf, lim)
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return err
	}
	r.Changes = *c
	old, err := os.OpenFile(filepath.Join(r.dir, "old"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer old.Close()
	var at int64
	for i := range r.List {
		ch := &r.List[i]
		if !ch.Before.is("file") || ch.Before.Size > maxOld || at+ch.Before.Size > maxOldAll {
			continue
		}
		text, ok := tree.content(ch.Path, ch.Before, maxOld)
		if !ok {
			continue
		}
		if _, err := old.Write(text); err != nil {
			return err
		}
		ch.Old = at
		at += int64(len(text))
	}
	return nil
}

// content reads a file of the tree, if it is the one that is meant.
func (t *Tree) content(path string, want *Side, most int64) ([]byte, bool) {
	c, err := t.open(&Entry{Path: path, Kind: File})
	if err != nil {
		return nil, false
	}
	defer c.close()
	if c.size > most {
		return nil, false
	}
	data, err := io.ReadAll(c)
	if err != nil {
		return nil, false
	}
	var e Entry
	c.note(&e)
	e.Kind = File
	return data, side(&e).SHA256 == want.SHA256
}

func writeJSON(path string, v any) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	err = enc.Encode(v)
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// Runs lists what is kept, newest first. What cannot be read is not in it.
func (s *State) Runs() []Info {
	names, _ := os.ReadDir(filepath.Join(s.dir, "runs"))
	var list []Info
	for _, n := range names {
		var info Info
		if strings.HasPrefix(n.Name(), ".") || readJSON(filepath.Join(s.dir, "runs", n.Name(), "info.json"), &info) != nil || info.ID != n.Name() {
			continue
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(b.Ended.Compare(a.Ended), strings.Compare(a.ID, b.ID))
	})
	return list
}

// prune removes what is too old, too many or too large; never the run keep.
func (s *State) prune(keep string) {
	runs := filepath.Join(s.dir, "runs")
	var size int64
	for i, info := range s.Runs() {
		dir := filepath.Join(runs, info.ID)
		size += sizeOf(dir)
		if info.ID != keep && (i >= keepRuns || time.Since(info.Ended) > keepFor || size > keepBytes) {
			os.RemoveAll(dir)
		}
	}
	s.sweep(runs, func(name string) bool { return strings.HasPrefix(name, ".new-") }, time.Hour)
	s.sweep(filepath.Join(s.dir, "trees"), func(string) bool { return true }, 30*24*time.Hour)
}

// sweep removes folders that nothing was written to for a while.
func (s *State) sweep(dir string, which func(name string) bool, after time.Duration) {
	names, _ := os.ReadDir(dir)
	for _, n := range names {
		p := filepath.Join(dir, n.Name())
		if fi, err := os.Lstat(filepath.Join(p, "of")); err == nil && time.Since(fi.ModTime()) < after {
			continue
		}
		if fi, err := os.Lstat(p); err == nil && which(n.Name()) && time.Since(fi.ModTime()) > after {
			os.RemoveAll(p)
		}
	}
}

func sizeOf(dir string) (n int64) {
	names, _ := os.ReadDir(dir)
	for _, e := range names {
		if fi, err := e.Info(); err == nil {
			n += fi.Size()
		}
	}
	return n
}

// Find opens a run by its id, by the start of one, or by "last": the newest of
// the tree that cwd lies in.
func (s *State) Find(name, cwd string) (*Run, error) {
	list := s.Runs()
	if name == "last" {
		for _, info := range list {
			if cwd == info.Tree || strings.HasPrefix(cwd, strings.TrimSuffix(info.Tree, "/")+"/") {
				return s.open(info)
			}
		}
		hint := "berm run --here -- COMMAND"
		if len(list) > 0 {
			hint = "berm diff " + list[0].ID + ", which is of " + list[0].Tree
		}
		return nil, refuse(api.CodeBadRequest, "last: no run of "+cwd+" is kept", hint)
	}
	var found []Info
	for _, info := range list {
		if info.ID == name {
			return s.open(info)
		}
		if name != "" && strings.HasPrefix(info.ID, name) {
			found = append(found, info)
		}
	}
	switch len(found) {
	case 1:
		return s.open(found[0])
	case 0:
		return nil, refuse(api.CodeBadRequest, Printable(name)+": no run of that id is kept; it may be too old, or had no --here", "berm diff --list")
	}
	return nil, refuse(api.CodeBadRequest, Printable(name)+": could be any of several runs", "more of the id")
}

func (s *State) open(info Info) (*Run, error) {
	r := &Run{Info: info, dir: filepath.Join(s.dir, "runs", info.ID)}
	err := readJSON(filepath.Join(r.dir, "changes.json"), &r.Changes)
	for name, f := range map[string]**os.File{"data": &r.data, "old": &r.old} {
		if err == nil {
			*f, err = os.Open(filepath.Join(r.dir, name))
			if errors.Is(err, fs.ErrNotExist) && info.Lost != "" {
				err = nil
			}
		}
	}
	if err != nil {
		r.Close()
		return nil, stateTrouble(err)
	}
	return r, nil
}

// after reads the content of a file as the sandbox left it.
func (r *Run) after(c *Change) io.Reader { return io.NewSectionReader(r.data, c.At, c.After.Size) }

// Count says how many files and links were changed, added and removed.
func (c *Changes) Count() (changed, added, removed int) {
	for i := range c.List {
		ch := &c.List[i]
		if !ch.shown(c) {
			continue
		}
		switch ch.What {
		case Changed:
			changed++
		case Added:
			added++
		case Removed:
			removed++
		}
	}
	return changed, added, removed
}

// Shown is how many changes of a list people count.
func (c *Changes) Shown(list []*Change) (n int) {
	for _, ch := range list {
		if ch.shown(c) {
			n++
		}
	}
	return n
}

// shown says whether a change is one that people count: a folder that came or
// went with what is in it is not.
func (ch *Change) shown(c *Changes) bool {
	if !ch.Before.is("dir") && !ch.After.is("dir") || ch.What == Changed {
		return true
	}
	i, _ := slices.BinarySearchFunc(c.List, ch.Path+"/", func(o Change, p string) int { return cmp.Compare(o.Path, p) })
	return i >= len(c.List) || !strings.HasPrefix(c.List[i].Path, ch.Path+"/")
}
