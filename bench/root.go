package bench

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const maxRoot = 16 << 30 // bytes of a template

// copyRoot makes a folder with the files of the template, by asking a sandbox
// for them: the only way that is open to any client.
func copyRoot(ctx context.Context, o Options, root string) error {
	sb, err := o.Client.Create(ctx, api.CreateRequest{Template: o.Template,
		Limits: api.Limits{OutputBytes: maxRoot / api.FloodFactor, TimeoutSeconds: 600}})
	if err != nil {
		return err
	}
	defer o.Client.Delete(context.WithoutCancel(ctx), sb.SandboxID)
	pr, pw := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := untar(pr, root)
		pr.CloseWithError(err) // a nil error ends the writer too
		unpacked <- err
	}()
	res, err := o.Client.Exec(ctx, sb.SandboxID, api.ExecRequest{Args: []string{"tar", "--create", "--ignore-failed-read",
		"--warning=none", "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "--exclude=./run/*", "--exclude=./.berm",
		"--directory=/", "."}}, client.Stdio{Stdout: pw})
	pw.CloseWithError(io.EOF)
	if e := <-unpacked; e != nil {
		return e
	}
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	if res.Ending != "" && (res.Ending != api.EndExit || res.NotStarted != "") {
		return fmt.Errorf("tar inside ended with %s %s", res.Ending, res.NotStarted)
	}
	return nil
}

// untar unpacks regular files, folders and symbolic links below root.
func untar(r io.Reader, root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	top, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer top.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, r) // the padding behind the end
			return err
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(strings.TrimPrefix(h.Name, "./"))
		if name == "." {
			continue
		}
		mode := fs.FileMode(h.Mode) & 0o777
		switch h.Typeflag {
		case tar.TypeDir:
			err = top.MkdirAll(name, mode|0o700)
		case tar.TypeSymlink:
			err = top.Symlink(h.Linkname, name)
		case tar.TypeLink:
			err = top.Link(filepath.Clean(strings.TrimPrefix(h.Linkname, "./")), name)
		case tar.TypeReg:
			err = unpackFile(top, name, mode, t)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(top *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	f, err := top.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
