package server

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build"
)

// Bounds of what comes with a build.
const (
	maxContextFile = 64 << 20 // one file of a form
	maxContext     = 2 << 30  // all files, or the archive
	maxFormFiles   = 20000
	maxRootfs      = 16 << 30
)

// buildTemplate starts a build. Our own clients send JSON, or a form of the
// file "request" and the file "context"; PandaStack's send fields, and the
// context as files that are called as their paths, or the file "rootfs".
func (s *server) buildTemplate(w http.ResponseWriter, r *http.Request) error {
	kind, args, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Header.Get("Content-Type") == "", err == nil && kind == "application/json":
		var req api.BuildRequest
		if err := decode(w, r, &req); err != nil {
			return err
		}
		return s.startBuild(w, r, req)
	case err == nil && kind == "application/x-www-form-urlencoded":
		b, err := body(w, r, maxBody)
		if err != nil {
			return err
		}
		form, err := url.ParseQuery(string(b))
		if err != nil {
			return &api.Error{Code: api.CodeBadRequest, Message: "request body: it is not a form"}
		}
		req, err := formRequest(form)
		if err != nil {
			return err
		}
		return s.startBuild(w, r, req)
	case err == nil && kind == "multipart/form-data" && args["boundary"] != "":
		return s.buildForm(w, r, args["boundary"])
	}
	return &api.Error{Code: api.CodeBadRequest, Message: "Content-Type: a build is JSON or a form", Hint: "send application/json"}
}

// A formed is a form that is being read.
type formed struct {
	in    *upload
	parts *multipart.Reader
	next  *multipart.Part // the first file that was not read; nil: none
}

func (s *server) buildForm(w http.ResponseWriter, r *http.Request, boundary string) error {
	f := &formed{in: &upload{r: s.stream(w, r), left: r.ContentLength}}
	f.parts = multipart.NewReader(f.in, boundary)
	req, err := f.request()
	if err != nil {
		return f.why(err)
	}
	req.Name = cmp.Or(req.Name, req.Recipe)
	if err := makes(req.Name); err != nil {
		return err
	}
	var in build.Input
	switch {
	case f.next == nil:
	case f.own():
		in.Context = &atMost{r: f.next, left: maxContext}
	case f.next.FormName() == "rootfs" && noSource(req):
		in.Rootfs = &atMost{r: f.next, left: maxRootfs}
	default:
		in.Context = newFormTar(f)
	}
	b, err := s.opt.Builds.Start(r.Context(), req, in)
	if err != nil {
		return f.why(err)
	}
	reply(w, http.StatusAccepted, b)
	return nil
}

// noSource says that a request leaves it to its file what is made.
func noSource(req api.BuildRequest) bool {
	return req.ImageRef == "" && req.From == "" && req.Dockerfile == "" && req.Recipe == "" && len(req.Debs) == 0
}

// why is what went wrong with a form: what the client did goes before what
// came of it.
func (f *formed) why(err error) error {
	var ae *api.Error
	switch {
	case f.in.err != nil:
		return f.in.refusal()
	case errors.As(err, &ae):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: the form is cut"}
	case errors.Is(err, errForm):
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: " + err.Error()}
	}
	return err
}

var errForm = errors.New("it is not a form")

// part is the next one; nil at the end.
func (f *formed) part() (*multipart.Part, error) {
	p, err := f.parts.NextRawPart()
	if err == io.EOF {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForm, err)
	}
	return p, nil
}

// request reads what comes before the first file of the context.
func (f *formed) request() (req api.BuildRequest, err error) {
	form, left := url.Values{}, int64(maxBody)
	for {
		p, err := f.part()
		if err != nil {
			return req, err
		}
		if p == nil {
			return formRequest(form)
		}
		if p.FileName() != "" && p.FormName() == "request" && len(form) == 0 && p.Header.Get("Content-Type") == "application/json" {
			b, err := io.ReadAll(&atMost{r: p, left: maxBody})
			if err != nil {
				return req, err
			}
			if err := decodeBytes(b, &req); err != nil {
				return req, err
			}
			if f.next, err = f.part(); err == nil && f.next != nil && !f.own() {
				err = &api.Error{Code: api.CodeBadRequest, Message: "request body: after the file request comes the file context, a tar", Hint: "send it as application/x-tar"}
			}
			return req, err
		}
		if p.FileName() != "" {
			f.next = p
			return formRequest(form)
		}
		b, err := io.ReadAll(&atMost{r: p, left: left})
		if err != nil {
			return req, err
		}
		left -= int64(len(b)) + 100
		form.Add(p.FormName(), string(b))
	}
}

// own says that the next file is the archive of one of our clients.
func (f *formed) own() bool {
	return f.next != nil && f.next.FormName() == "context" && f.next.Header.Get("Content-Type") == "application/x-tar"
}

// A formTar is the files of a form as a tar. The name of a field is the path of
// its file: what the file is called may have lost its directories.
type formTar struct {
	f    *formed
	tw   *tar.Writer
	buf  bytes.Buffer
	left int64 // bytes that may still come
	n    int   // files
	err  error // what follows what is in buf
}

func newFormTar(f *formed) *formTar {
	t := &formTar{f: f, left: maxContext}
	t.tw = tar.NewWriter(&t.buf)
	return t
}

func (t *formTar) Read(p []byte) (int, error) {
	for t.buf.Len() == 0 {
		if t.err != nil {
			return 0, t.err
		}
		t.err = t.file()
	}
	return t.buf.Read(p)
}

// file takes the next one; io.EOF is after the last.
func (t *formTar) file() error {
	p := t.f.next
	if p == nil {
		return cmp.Or(t.tw.Close(), io.EOF)
	}
	if t.n++; t.n > maxFormFiles {
		return &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the context has more than %d files", maxFormFiles)}
	}
	if p.FileName() == "" {
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: a field follows a file", Hint: "send the fields first"}
	}
	name := path.Clean(p.FormName())
	if name == "." || name == ".." || strings.HasPrefix(name, "../") || path.IsAbs(name) || len(name) > 4096 || strings.ContainsRune(name, 0) {
		return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("request body: %.60q is not a path in the context", p.FormName()), Hint: "a file's field is called as its path, relative to the context"}
	}
	b, err := io.ReadAll(&atMost{r: p, left: min(t.left, maxContextFile)})
	if err != nil {
		return err
	}
	t.left -= int64(len(b)) + 512
	if err := t.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(b))}); err != nil {
		return err
	}
	if _, err := t.tw.Write(b); err != nil {
		return err
	}
	t.f.next, err = t.f.part()
	return err
}

// atMost refuses what is longer, instead of cutting it.
type atMost struct {
	r    io.Reader
	left int64
}

func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, &api.Error{Code: api.CodeTooLarge, Message: "the request is larger than a build may be", Hint: "leave out what the build does not need: .dockerignore"}
	}
	return n, err
}

// formFields are the fields of a form. Those that come from PandaStack's
// clients and mean nothing here are known, and that is all.
var formFields = []string{"name", "replace", "image_ref", "platform", "plain_http", "from", "debs", "suite", "mirror", "pips", "npms", "dockerfile", "no_cache",
	"size_mb", "cpu", "memory_mb", "kernel"}

// formRequest is the request that a form stands for.
func formRequest(form url.Values) (req api.BuildRequest, err error) {
	list := []string{"debs", "pips", "npms"}
	for name, v := range form {
		if !slices.Contains(formFields, name) {
			return req, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("the field %q is not known", clip(name)), Hint: namesAre(formFields)}
		}
		if len(v) > 1 && !slices.Contains(list, name) {
			return req, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("the field %q is there twice", clip(name))}
		}
	}
	req = api.BuildRequest{Name: form.Get("name"), ImageRef: form.Get("image_ref"), Platform: form.Get("platform"), From: form.Get("from"),
		Suite: form.Get("suite"), Mirror: form.Get("mirror"), Dockerfile: form.Get("dockerfile")}
	for name, to := range map[string]*[]string{"debs": &req.Debs, "pips": &req.Pips, "npms": &req.Npms} {
		for _, v := range form[name] {
			*to = append(*to, strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })...)
		}
	}
	for name, to := range map[string]*bool{"replace": &req.Replace, "plain_http": &req.PlainHTTP, "no_cache": &req.NoCache} {
		if *to, err = truth(form, name); err != nil {
			return req, err
		}
	}
	amount := func(name string) (float64, error) {
		v := form.Get(name)
		f, err := strconv.ParseFloat(v, 64)
		if v == "" {
			return 0, nil
		}
		if err != nil || math.IsNaN(f) || f < 0 || f > 1<<30 {
			return 0, &api.Error{Code: api.CodeBadRequest, Message: name + ": a number is expected"}
		}
		return f, nil
	}
	if req.Limits.CPUs, err = amount("cpu"); err != nil {
		return req, err
	}
	mb, err := amount("memory_mb")
	req.Limits.MemoryBytes = int64(mb * (1 << 20))
	return req, err
}
