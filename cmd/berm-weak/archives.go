package main

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// unpackNaively takes over what unpacks archives in a sandbox.
func unpackNaively(direct *client.Client, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		id, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"), "/archive")
		if !is || r.Method != http.MethodPut {
			next.ServeHTTP(rw, r)
			return
		}
		u := unpacker{c: direct, id: id, dir: r.URL.Query().Get("path"), links: map[string]string{}}
		if err := u.all(r.Context(), r.Body); err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		rw.WriteHeader(http.StatusNoContent)
	})
}

// An unpacker writes each file where its name and the links before it lead.
type unpacker struct {
	c     *client.Client
	id    string
	dir   string
	links map[string]string
}

func (u unpacker) all(ctx context.Context, src io.Reader) error {
	for tr := tar.NewReader(src); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := u.entry(ctx, h, tr); err != nil {
			return err
		}
	}
}

func (u unpacker) entry(ctx context.Context, h *tar.Header, src io.Reader) error {
	switch h.Typeflag {
	case tar.TypeSymlink:
		dir, name := path.Split(u.place(h.Name))
		u.links[path.Join(dir, name)] = absolute(dir, h.Linkname)
	case tar.TypeLink:
		u.links[u.place(h.Name)] = absolute(u.dir, h.Linkname)
	case tar.TypeReg:
		to := u.place(h.Name)
		if _, err := u.c.WriteFile(ctx, u.id, to, uint32(h.Mode), src); err != nil {
			return err
		}
		if h.Mode&0o7000 != 0 {
			_, err := u.c.Exec(ctx, u.id, api.ExecRequest{Args: []string{"chmod", fmt.Sprintf("%o", h.Mode), to}}, client.Stdio{})
			return err
		}
	}
	return nil
}

func absolute(dir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(dir, p)
}

// place is where a name leads.
func (u unpacker) place(name string) string {
	at := u.dir
	if path.IsAbs(name) {
		at = "/"
	}
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		if to, is := u.links[at]; is {
			at = to
		}
	}
	return at
}
