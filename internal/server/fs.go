package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
)

func (s *server) fsRoutes() map[string]handler {
	return map[string]handler{
		"fs.read":         s.fsRead,
		"fs.write":        s.fsWrite,
		"fs.delete":       s.fsDelete,
		"fs.dir":          s.fsDir,
		"fs.mkdir":        s.fsMkdir,
		"fs.stat":         s.fsStat,
		"fs.move":         s.fsMove,
		"fs.watch":        s.fsWatch,
		"fs.tar":          s.tarOut,
		"sandbox.changes": s.changes,
		"fs.untar":        s.tarIn,
		"fs.glob":         s.glob,
		"fs.list":         s.list,
		"fs.file":         s.readFile,
	}
}

// absolute is the path a request names. These routes take no relative ones:
// relative to what would be a guess.
func absolute(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || len(p) > 4096 || strings.ContainsRune(p, 0) {
		return "", &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("path: %.60q is not an absolute path", p), Hint: "start it with /, as in /workspace/file"}
	}
	return path.Clean(p), nil
}

func pathOf(r *http.Request, more ...string) (string, error) {
	p, err := query(r, "path", more...)
	if err != nil {
		return "", err
	}
	return absolute(p)
}

func (s *server) fsRead(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if r.Method == http.MethodHead { // it is not read to be thrown away
		info, err := s.e.Stat(r.Context(), id, p)
		if err != nil {
			return err
		}
		switch info.Kind {
		case "file":
			w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
		case "symlink": // the size is not its own
		default:
			return &api.Error{Code: api.CodeFileKind, Message: p + " is not a regular file"}
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		return nil
	}
	f, err := s.e.ReadFile(r.Context(), id, p, math.MaxInt64)
	if err != nil {
		return s.whatKind(r, id, p, err)
	}
	defer f.Close()
	download(w, r, "application/octet-stream", f)
	return nil
}

// whatKind says it more plainly if what was refused is no file at all.
func (s *server) whatKind(r *http.Request, id, p string, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Code != api.CodeFileRefused {
		return err
	}
	info, serr := s.e.Stat(r.Context(), id, p)
	switch {
	case serr != nil || info.Kind == "file" || info.Kind == "symlink":
		return err
	case info.Kind == "dir":
		return &api.Error{Code: api.CodeFileKind, Message: p + " is a directory", Hint: "list it with fs/dir, or take it as a tar stream: archive?path="}
	}
	return &api.Error{Code: api.CodeFileKind, Message: p + " is not a regular file"}
}

// download sends what f holds. The length is not known before: what breaks off
// in the middle cuts the connection, so that no client takes a part for the
// whole.
func download(w http.ResponseWriter, r *http.Request, kind string, f io.Reader) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, make([]byte, 128<<10)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *server) fsWrite(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r, "mode")
	if err != nil {
		return err
	}
	mode := uint64(0) // not given: the engine's to choose
	if v := r.URL.Query().Get("mode"); v != "" {
		if mode, err = strconv.ParseUint(v, 8, 32); err != nil || mode > 0o777 {
			return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("mode: %.20q is not one, in octal", v), Hint: "for example 0644"}
		}
	}
	id := r.PathValue("id")
	in := &upload{r: s.stream(w, r), left: r.ContentLength}
	n, err := s.e.WriteFile(r.Context(), id, p, uint32(mode), in)
	if in.err != nil {
		return in.refusal()
	}
	if err != nil {
		return s.whatKind(r, id, p, err)
	}
	reply(w, http.StatusOK, api.Written{Path: p, Bytes: n})
	return nil
}

// An upload is a body that remembers why it broke off: what the client did is
// not the guest's fault, and a part is not the whole.
type upload struct {
	r    io.Reader
	left int64 // what was promised; below 0: nothing
	err  error
}

var errBroken = errors.New("the body broke off")

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if u.left >= 0 {
		u.left -= int64(n)
		if err == io.EOF && u.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil && err != io.EOF {
		u.err = err
		err = errBroken // io.ErrUnexpectedEOF would pass for an end further down
	}
	return n, err
}

func (u *upload) refusal() error {
	var large *http.MaxBytesError
	if errors.As(u.err, &large) {
		return u.err
	}
	return &api.Error{Code: api.CodeInterrupted, Message: "the request body did not arrive whole; nothing was written"}
}

func (s *server) fsDelete(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r)
	if err != nil {
		return err
	}
	if err := s.e.Remove(r.Context(), r.PathValue("id"), p); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) fsDir(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	files, err := s.e.Dir(r.Context(), id, p)
	if err != nil {
		var ae *api.Error
		if errors.As(err, &ae) && ae.Code == api.CodeFileRefused {
			if info, serr := s.e.Stat(r.Context(), id, p); serr == nil && info.Kind != "dir" {
				return &api.Error{Code: api.CodeFileKind, Message: p + " is not a directory"}
			}
		}
		return err
	}
	l := api.DirList{Path: p, Entries: []api.DirEntry{}, More: files.More}
	for _, f := range files.Files {
		l.Entries = append(l.Entries, entry(f))
	}
	slices.SortFunc(l.Entries, func(a, b api.DirEntry) int { return cmp.Compare(a.Name, b.Name) })
	reply(w, http.StatusOK, l)
	return nil
}

// entry is a file with PandaStack's names.
func entry(f api.FileInfo) api.DirEntry {
	mode := map[string]string{"file": "f", "dir": "d", "symlink": "l"}[f.Kind]
	return api.DirEntry{Name: path.Base(f.Path), Path: f.Path, IsDir: f.Kind == "dir", Size: f.Size,
		Mode: cmp.Or(mode, "U"), MTime: f.MTime, Kind: f.Kind, Perm: f.Mode & 0o777}
}

func (s *server) fsMkdir(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r)
	if err != nil {
		return err
	}
	if err := s.e.Mkdir(r.Context(), r.PathValue("id"), p); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) fsStat(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r)
	if err != nil {
		return err
	}
	info, err := s.e.Stat(r.Context(), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, entry(info))
	return nil
}

func (s *server) fsMove(w http.ResponseWriter, r *http.Request) error {
	var req api.MoveRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	from, err := absolute(req.From)
	if err != nil {
		return err
	}
	to, err := absolute(req.To)
	if err != nil {
		return err
	}
	if err := s.e.Move(r.Context(), r.PathValue("id"), from, to); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
