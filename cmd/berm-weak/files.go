package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// fileWalls stand where files and words come out.
var fileWalls = []wall{
	{
		name: "artifacts", without: "what is brought out is made as it lies inside",
		extract: naive,
	},
	{
		name: "archives", without: "archives are unpacked by their names and links, wherever those lead",
		handle: unpackNaively,
	},
}

// naiveMost bounds what a naive copy writes to this host.
const naiveMost = 8 << 20

// naive brings files out as a plain copy would: by the names that they have
// inside, with their modes, links as links, into whatever lies there already. It
// is not let out of the folder by a name; by a link that lies in it, it is.
func naive(ctx context.Context, from client.Files, id string, outs []client.Out, limit int64) (client.Haul, error) {
	c, ok := from.(*client.Client)
	if !ok {
		return client.Haul{}, errors.New("berm-weak: no client to copy with")
	}
	n := naiveCopy{ctx: ctx, c: c, id: id, left: limit + naiveMost}
	for _, o := range outs {
		list, err := c.Glob(ctx, id, o.Pattern)
		if err != nil {
			continue
		}
		for _, f := range list.Files {
			n.copy(f, o.Local)
			if f.Kind != "dir" {
				continue
			}
			below, err := c.List(ctx, id, f.Path)
			if err != nil {
				continue
			}
			for _, f := range below.Files {
				n.copy(f, o.Local)
			}
		}
	}
	return client.Haul{}, ctx.Err()
}

type naiveCopy struct {
	ctx  context.Context
	c    *client.Client
	id   string
	left int64
}

// copy makes one entry. What cannot be made is passed over.
func (n *naiveCopy) copy(f api.FileInfo, local string) {
	rel := strings.TrimPrefix(path.Clean(f.Path), api.Workspace+"/")
	to := filepath.Join(local, rel)
	if !filepath.IsLocal(rel) {
		return
	}
	os.MkdirAll(filepath.Dir(to), 0o755)
	mode := os.FileMode(f.Mode & 0o777)
	if f.Mode&0o4000 != 0 {
		mode |= os.ModeSetuid
	}
	switch f.Kind {
	case "dir":
		os.Mkdir(to, 0o755)
	case "symlink":
		os.Symlink("/proc/self/environ", to) // where it leads is no part of a listing
	case "other":
		syscall.Mkfifo(to, 0o644)
	case "file":
		n.file(f, to, mode)
	}
}

func (n *naiveCopy) file(f api.FileInfo, to string, mode os.FileMode) {
	r, err := n.c.OpenFile(n.ctx, n.id, f.Path)
	if err != nil {
		return
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return
	}
	defer w.Close()
	k, _ := io.Copy(w, io.LimitReader(r, n.left))
	n.left -= k
	os.Chmod(to, mode)
}
