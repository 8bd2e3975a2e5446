package daemon

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// A Program is one that berm carries inside: <Name>.gz in Files, with the
// SHA-256 of what comes out, in hex, in <Name>.sha256. Files is only read for
// what is needed: a copy of all of it would cost every start milliseconds.
type Program struct {
	Name  string
	Files fs.FS
	Aside bool // it replaces nothing: what other programs have unpacked stays
}

// maxProgram bounds what an embedded program unpacks to.
const maxProgram = 256 << 20

func (p Program) digest() (string, error) {
	b, err := fs.ReadFile(p.Files, p.Name+".sha256")
	d := strings.TrimSpace(string(b))
	if err != nil || len(d) != 64 {
		return "", &api.Error{Code: api.CodeHostFailure,
			Message: "this berm was built without its " + p.Name + " program",
			Hint:    "make build"}
	}
	return d, nil
}

// bytes unpacks p and checks it.
func (p Program) bytes() ([]byte, error) {
	want, err := p.digest()
	if err != nil {
		return nil, err
	}
	f, err := p.Files.Open(p.Name + ".gz")
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	b, err := io.ReadAll(io.LimitReader(z, maxProgram))
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	if got := sha256.Sum256(b); hex.EncodeToString(got[:]) != want {
		return nil, fmt.Errorf("unpack %s: what came out is not what was put in", p.Name)
	}
	return b, nil
}

// unpack puts p below runtimes/<digest> once and returns its path. Runtimes are
// content-addressed: an upgrade leaves the old one to whoever still needs it.
func unpack(state string, p Program) (string, error) {
	digest, err := p.digest()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(state, "runtimes", digest)
	path := filepath.Join(dir, p.Name)
	if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
		return path, nil
	}
	b, err := p.bytes()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".unpack-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o755), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", p.Name, err)
	}
	if !p.Aside {
		dropRuntimes(filepath.Dir(dir), digest)
	}
	return path, nil
}

// keepOld is how long what an upgrade has replaced stays: another version of
// berm that still uses it makes it anew if it is gone.
const keepOld = 24 * time.Hour

// dropRuntimes removes what earlier versions have unpacked. Sandboxes that run
// on one hold it open.
func dropRuntimes(runtimes, keep string) {
	ents, _ := os.ReadDir(runtimes)
	for _, e := range ents {
		if fi, err := e.Info(); err == nil && e.Name() != keep && time.Since(fi.ModTime()) > keepOld {
			os.RemoveAll(filepath.Join(runtimes, e.Name()))
		}
	}
}

// agentImage is the name of the image that holds the guest agent. It is noted
// beside the runtimes by the agent's digest, so that a start costs two stats
// and not the unpacking of the agent.
func agentImage(ctx context.Context, state string, store *image.Store, p Program) (string, error) {
	digest, err := p.digest()
	if err != nil {
		return "", err
	}
	note := filepath.Join(state, "runtimes", digest, p.Name+".image")
	if b, err := os.ReadFile(note); err == nil {
		name := strings.TrimSpace(string(b))
		if _, err := os.Stat(store.Path(name)); err == nil {
			return name, nil
		}
	}
	b, err := p.bytes()
	if err != nil {
		return "", err
	}
	img, err := store.Blob(ctx, image.AgentFiles(b))
	if err != nil {
		return "", err
	}
	if !p.Aside {
		store.GC(func(name string) bool { // layers of earlier agents
			m, err := store.Manifest(name)
			return err != nil || name == img.Name || m.Template != img.Template || time.Since(m.Created) < keepOld
		})
	}
	if err := os.MkdirAll(filepath.Dir(note), 0o700); err != nil {
		return "", err
	}
	return img.Name, os.WriteFile(note, []byte(img.Name+"\n"), 0o600)
}
