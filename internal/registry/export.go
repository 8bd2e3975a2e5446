package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bermhq/berm/api"
)

// Export is an image to be written.
type Export struct {
	Name     string // becomes a tag where docker could call an image so
	Platform string // "": this host's
	Created  time.Time
	Config   api.TemplateConfig
	Layers   []ExportLayer // lowest first
}

// An ExportLayer writes the plain tar of one layer, with OCI's whiteouts. Tar
// is called twice and writes the same bytes both times.
type ExportLayer struct {
	Tar func(io.Writer) error
}

// WriteOCI writes an OCI layout in a tar. The same image gives the same bytes.
func WriteOCI(w io.Writer, e Export) error { return write(w, e, false) }

// WriteDocker writes what docker load and podman load take, any version of
// them. It is an OCI layout as well. The same image gives the same bytes.
func WriteDocker(w io.Writer, e Export) error { return write(w, e, true) }

func write(w io.Writer, e Export, docker bool) error {
	p, err := parsePlatform(e.Platform)
	if err != nil {
		return err
	}
	if len(e.Layers) > maxLayers {
		return fmt.Errorf("export %s: %d layers; the most is %d", e.Name, len(e.Layers), maxLayers)
	}
	created := v1.Time{Time: e.Created.UTC()}
	if e.Created.IsZero() {
		created.Time = time.Unix(0, 0).UTC()
	}
	conf := v1.ConfigFile{Created: created, OS: p.OS, Architecture: p.Architecture, Variant: p.Variant,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}},
		Config: v1.Config{Env: e.Config.Env, User: e.Config.User, WorkingDir: e.Config.Workdir, Entrypoint: e.Config.Entrypoint, Cmd: e.Config.Cmd}}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{}}
	for i, l := range e.Layers {
		c := &counter{hash: sha256.New()}
		if err := l.Tar(c); err != nil {
			return fmt.Errorf("export %s: layer %d: %w", e.Name, i+1, err)
		}
		h, err := v1.NewHash(sum(c.hash))
		if err != nil {
			return err
		}
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: h, Size: c.n})
		conf.RootFS.DiffIDs = append(conf.RootFS.DiffIDs, h)
		conf.History = append(conf.History, v1.History{Created: created, CreatedBy: "berm template export"})
	}
	out := &layoutTar{w: tar.NewWriter(w), at: created.Time, have: map[string]bool{}}
	out.text("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	out.dir("blobs/")
	out.dir("blobs/sha256/")
	m.Config = out.blob(types.OCIConfigJSON, conf)
	manifest := out.blob(types.OCIManifestSchema1, m)
	manifest.Platform = &p
	tag := tagOf(e.Name)
	if tag != "" {
		manifest.Annotations = map[string]string{"io.containerd.image.name": canonicalTag(tag), "org.opencontainers.image.ref.name": tag[strings.LastIndexByte(tag, ':')+1:]}
	}
	out.json("index.json", v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{manifest}})
	if docker {
		entry := dockerEntry{Config: blobName(m.Config.Digest), RepoTags: []string{}, Layers: []string{}}
		if tag != "" {
			entry.RepoTags = append(entry.RepoTags, tag)
		}
		for _, l := range m.Layers {
			entry.Layers = append(entry.Layers, blobName(l.Digest))
		}
		out.json("manifest.json", []dockerEntry{entry})
	}
	for i, l := range e.Layers {
		out.layer(m.Layers[i], l)
	}
	if out.err != nil {
		return fmt.Errorf("export %s: %w", e.Name, out.err)
	}
	return out.w.Close()
}

// tagOf is what docker would call an image of this name, "" if it could not.
func tagOf(s string) string {
	if _, err := name.NewTag(s); err != nil || s == "" || strings.ToLower(s) != s {
		return ""
	}
	if !strings.Contains(s[strings.LastIndexByte(s, '/')+1:], ":") {
		s += ":latest"
	}
	return s
}

func canonicalTag(s string) string {
	if full, err := Canonical(s); err == nil {
		return full
	}
	return s
}

// A layoutTar writes files of an archive until one fails.
type layoutTar struct {
	w    *tar.Writer
	at   time.Time
	have map[string]bool
	err  error
}

func (o *layoutTar) header(h *tar.Header) {
	if o.err == nil {
		h.ModTime = o.at.Truncate(time.Second)
		o.err = o.w.WriteHeader(h)
	}
}

func (o *layoutTar) dir(name string) {
	o.header(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755})
}

func (o *layoutTar) text(name string, data []byte) {
	o.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))})
	if o.err == nil {
		_, o.err = o.w.Write(data)
	}
}

func (o *layoutTar) json(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = err
	}
	o.text(name, data)
	return data
}

func (o *layoutTar) blob(kind types.MediaType, v any) v1.Descriptor {
	data, err := json.Marshal(v)
	if err != nil && o.err == nil {
		o.err = err
	}
	h, n, _ := v1.SHA256(bytes.NewReader(data))
	o.text(blobName(h), data)
	return v1.Descriptor{MediaType: kind, Digest: h, Size: n}
}

func (o *layoutTar) layer(d v1.Descriptor, l ExportLayer) {
	if o.err != nil || o.have[d.Digest.Hex] {
		return
	}
	o.have[d.Digest.Hex] = true
	o.header(&tar.Header{Typeflag: tar.TypeReg, Name: blobName(d.Digest), Mode: 0o644, Size: d.Size})
	if o.err != nil {
		return
	}
	c := &counter{hash: sha256.New(), next: o.w}
	if o.err = l.Tar(c); o.err == nil && sum(c.hash) != d.Digest.String() {
		o.err = fmt.Errorf("layer %s gave other bytes the second time", short(d.Digest.String()))
	}
}

// A counter counts and hashes what is written, and passes it on.
type counter struct {
	hash hash.Hash
	n    int64
	next io.Writer
}

func (c *counter) Write(p []byte) (int, error) {
	c.hash.Write(p)
	c.n += int64(len(p))
	if c.next == nil {
		return len(p), nil
	}
	return c.next.Write(p)
}
