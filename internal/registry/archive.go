package registry

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ErrNoImage says that an archive holds no image: a plain root filesystem, as
// docker export makes, or no tar at all.
var ErrNoImage = errors.New("the archive holds no image")

// Bounds of an archive of images.
const (
	maxEntries = 100000
	maxImages  = 256
	maxLinks   = 8 // of one name to the next
)

// An Archive holds images that docker save, or a tool that writes OCI layouts,
// put into one tar.
type Archive struct {
	src    io.ReaderAt
	files  map[string]span   // by cleaned name
	links  map[string]string // symlinks and hard links, to cleaned names
	images []found
}

// A span is the content of one file of the archive.
type span struct{ off, size int64 }

// found is an image, or several for platforms, under names.
type found struct {
	names  []string
	digest string // of what index.json names; "" in an old docker archive
	// open reads it for a platform.
	open func(what string, want v1.Platform) (*Image, error)
}

// ReadArchive looks for images in a plain tar of size bytes. It reads headers
// and lists, no layers. What is no archive of images gives ErrNoImage.
func ReadArchive(r io.ReaderAt, size int64) (*Archive, error) {
	a := &Archive{src: r, files: map[string]span{}, links: map[string]string{}}
	full, err := a.scan(r, size)
	if err != nil {
		return nil, ErrNoImage
	}
	index, isOCI := a.lookup("index.json")
	_, marked := a.lookup("oci-layout")
	list, isDocker := a.lookup("manifest.json")
	if isOCI = isOCI && marked; !isOCI && !isDocker {
		return nil, ErrNoImage
	}
	if !full {
		return nil, tooLarge("archive", "it has more than %d entries", maxEntries)
	}
	var entries []dockerEntry
	if isDocker {
		if entries, err = a.dockerList(list); err != nil && !isOCI {
			return nil, err
		}
	}
	if isOCI {
		if err := a.readLayout(index, entries); err != nil {
			return nil, err
		}
	} else {
		a.readDocker(entries)
	}
	if len(a.images) == 0 {
		return nil, unusable("archive", "save an image into it: docker save -o FILE IMAGE", "it lists no image")
	}
	return a, nil
}

// scan notes where every file is. It stops at maxEntries and says false.
func (a *Archive) scan(r io.ReaderAt, size int64) (bool, error) {
	at := io.NewSectionReader(r, 0, size)
	t := tar.NewReader(at)
	for count := 0; ; count++ {
		h, err := t.Next()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if count >= maxEntries {
			return false, nil
		}
		name, ok := cleanName(h.Name)
		if !ok {
			continue
		}
		delete(a.files, name) // of two entries with one name the last counts
		delete(a.links, name)
		switch h.Typeflag {
		case tar.TypeReg:
			pos, err := at.Seek(0, io.SeekCurrent)
			if err != nil {
				return false, err
			}
			if h.Size >= 0 && h.Size <= size-pos && !sparse(h) {
				a.files[name] = span{pos, h.Size}
			}
		case tar.TypeSymlink:
			if to, ok := cleanName(path.Join(path.Dir(name), h.Linkname)); ok && !path.IsAbs(h.Linkname) {
				a.links[name] = to
			}
		case tar.TypeLink:
			if to, ok := cleanName(h.Linkname); ok {
				a.links[name] = to
			}
		}
	}
}

func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// cleanName is a name inside the archive without detours; not one that leads
// out of it.
func cleanName(s string) (string, bool) {
	s = path.Clean(s)
	return s, len(s) <= 4096 && s != "." && s != ".." && !strings.HasPrefix(s, "../") && !path.IsAbs(s)
}

// lookup finds a file by name, through the archive's own links.
func (a *Archive) lookup(name string) (span, bool) {
	name, ok := cleanName(name)
	if !ok {
		return span{}, false
	}
	for range maxLinks {
		if s, ok := a.files[name]; ok {
			return s, true
		}
		to, ok := a.links[name]
		if !ok {
			return span{}, false
		}
		name = to
	}
	return span{}, false
}

func (a *Archive) small(s span, most int64) ([]byte, error) {
	if s.size > most {
		return nil, tooLarge("archive", "a manifest or configuration in it has %s", human(s.size))
	}
	raw := make([]byte, s.size)
	if _, err := a.src.ReadAt(raw, s.off); err != nil && err != io.EOF {
		return nil, err
	}
	return raw, nil
}

func (a *Archive) section(s span) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		return struct {
			*io.SectionReader
			io.Closer
		}{io.NewSectionReader(a.src, s.off, s.size), io.NopCloser(nil)}, nil
	}
}

// Names lists what the images are called, each once.
func (a *Archive) Names() []string {
	var all []string
	for _, f := range a.images {
		for _, n := range f.names {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

// Pick gives the image of a name for a platform. "" as the name is the only
// image there is; "" as the platform is this host's. Layers have Open, and
// nothing of them has been read.
func (a *Archive) Pick(name, platform string) (*Image, error) {
	want, err := parsePlatform(platform)
	if err != nil {
		return nil, err
	}
	hits := a.images
	if name != "" {
		hits = slices.DeleteFunc(slices.Clone(hits), func(f found) bool {
			return !slices.ContainsFunc(f.names, func(n string) bool { return sameName(n, name) })
		})
		if len(hits) == 0 {
			return nil, unusable("archive", "name one that is there", "it holds no image %.100q; there is %s", name, a.list())
		}
	}
	var first error
	var got []*Image
	for _, f := range hits {
		what := "archive"
		if len(f.names) > 0 {
			what = "image " + clean(f.names[0], 200)
		}
		img, err := f.open(what, want)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		if img.Ref = ""; len(f.names) > 0 {
			img.Ref = f.names[0]
		}
		if !slices.ContainsFunc(got, func(i *Image) bool { return i.Digest == img.Digest }) {
			got = append(got, img)
		}
	}
	switch len(got) {
	case 0:
		return nil, first
	case 1:
		return got[0], nil
	}
	return nil, unusable("archive", "save the one that is meant into an archive of its own", "it holds %d images, %s", len(got), a.list())
}

func (a *Archive) list() string {
	var out []string
	for _, n := range a.Names() {
		if len(out) == 10 {
			out = append(out, "more")
			break
		}
		out = append(out, clean(n, 100))
	}
	if len(out) == 0 {
		return "none with a name"
	}
	return strings.Join(out, ", ")
}

// sameName compares names as docker does, where they are references at all.
func sameName(a, b string) bool {
	if a == b {
		return true
	}
	full, err := Canonical(a)
	other, err2 := Canonical(b)
	return err == nil && err2 == nil && full == other
}

// readLayout reads an OCI layout. What docker's own list says of names is
// added, where it points to the same configurations.
func (a *Archive) readLayout(index span, entries []dockerEntry) error {
	raw, err := a.small(index, maxManifest)
	if err != nil {
		return err
	}
	var list v1.IndexManifest
	if err := json.Unmarshal(raw, &list); err != nil {
		return unusable("archive", "write it again", "its index.json cannot be read: %s", clean(err.Error(), 120))
	}
	if len(list.Manifests) > maxImages {
		return tooLarge("archive", "its index.json names %d images", len(list.Manifests))
	}
	for _, d := range list.Manifests {
		if d.Annotations["vnd.docker.reference.type"] != "" {
			continue // what was attested of an image is none
		}
		f := found{digest: d.Digest.String()}
		for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
			if n := d.Annotations[key]; n != "" && len(n) <= maxRef && (len(f.names) == 0 || strings.ContainsAny(n, "/:")) {
				f.names = append(f.names, n)
			}
		}
		f.open = func(what string, want v1.Platform) (*Image, error) {
			top, err := a.blob(what, d, maxManifest)
			if err != nil {
				return nil, err
			}
			manifest, err := choose(what, top, string(d.MediaType), want, func(d v1.Descriptor) ([]byte, error) { return a.blob(what, d, maxManifest) })
			if err != nil {
				return nil, err
			}
			img, err := parse(what, manifest, want, func(d v1.Descriptor) ([]byte, error) { return a.blob(what, d, maxConfig) })
			if err != nil {
				return nil, err
			}
			return img, a.openLayers(what, img)
		}
		if names := a.dockerNames(d, entries); len(names) > 0 {
			f.names = names
		}
		a.images = append(a.images, f)
	}
	return nil
}

// dockerNames are the names that docker's list has for an image of a layout.
func (a *Archive) dockerNames(d v1.Descriptor, entries []dockerEntry) []string {
	if len(entries) == 0 || d.MediaType.IsIndex() {
		return nil
	}
	raw, err := a.blob("archive", d, maxManifest)
	if err != nil {
		return nil
	}
	var m v1.Manifest
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	for _, e := range entries {
		if e.Config == blobName(m.Config.Digest) {
			return e.RepoTags
		}
	}
	return nil
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// blob reads a small file of a layout by its digest.
func (a *Archive) blob(what string, d v1.Descriptor, most int64) ([]byte, error) {
	if err := checkSmall(what, d, most); err != nil {
		return nil, err
	}
	s, ok := a.lookup(blobName(d.Digest))
	if !ok {
		return nil, unusable(what, "save it again, whole", "the archive lacks %s", short(d.Digest.String()))
	}
	raw, err := a.small(s, most)
	if err != nil {
		return nil, err
	}
	return raw, checkBytes(what, raw, d)
}

// openLayers finds the layers of an image of a layout.
func (a *Archive) openLayers(what string, img *Image) error {
	for i, l := range img.Layers {
		s, ok := a.lookup("blobs/sha256/" + strings.TrimPrefix(l.Digest, "sha256:"))
		switch {
		case !ok:
			return unusable(what, "save it again, whole", "the archive lacks layer %d, %s", i+1, short(l.Digest))
		case s.size != l.Size:
			return refused(what, "layer %s has %d bytes, and its manifest says %d", short(l.Digest), s.size, l.Size)
		}
		img.Layers[i].Open = a.section(s)
	}
	return nil
}

// dockerEntry is an image in docker's manifest.json: names of files.
type dockerEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *Archive) dockerList(s span) ([]dockerEntry, error) {
	raw, err := a.small(s, maxManifest)
	if err != nil {
		return nil, err
	}
	var list []dockerEntry
	if err := json.Unmarshal(raw, &list); err != nil || slices.ContainsFunc(list, func(e dockerEntry) bool { return e.Config == "" }) {
		return nil, ErrNoImage // a root filesystem may have a file of this name
	}
	if len(list) > maxImages {
		return nil, tooLarge("archive", "its manifest.json names %d images", len(list))
	}
	for i, e := range list {
		list[i].RepoTags = slices.DeleteFunc(e.RepoTags, func(n string) bool { return n == "" || len(n) > maxRef })
	}
	return list, nil
}

// hexName finds the digest that a file is named by.
var hexName = regexp.MustCompile(`^(?:.*/)?(?:sha256:)?([0-9a-f]{64})(?:\.json)?$`)

func (a *Archive) readDocker(entries []dockerEntry) {
	for _, e := range entries {
		a.images = append(a.images, found{names: e.RepoTags, open: func(what string, want v1.Platform) (*Image, error) {
			return a.dockerImage(what, e, want)
		}})
	}
}

func (a *Archive) dockerImage(what string, e dockerEntry, want v1.Platform) (*Image, error) {
	s, ok := a.lookup(e.Config)
	if !ok {
		return nil, unusable(what, "save it again, whole", "the archive lacks its configuration, %s", clean(e.Config, 120))
	}
	conf, err := a.small(s, maxConfig)
	if err != nil {
		return nil, err
	}
	digest := digestOf(conf)
	if m := hexName.FindStringSubmatch(e.Config); m != nil && "sha256:"+m[1] != digest {
		return nil, refused(what, "its configuration has the digest %s, and its name says %s", short(digest), m[1][:12])
	}
	img, diffs, err := parseConfig(what, conf, want)
	if err != nil {
		return nil, err
	}
	if len(diffs) != len(e.Layers) {
		return nil, refused(what, "it has %d layers, and its configuration %d", len(e.Layers), len(diffs))
	}
	img.Digest = digest
	for i, file := range e.Layers {
		s, ok := a.lookup(file)
		if !ok {
			return nil, unusable(what, "save it again, whole", "the archive lacks layer %d, %s", i+1, clean(file, 120))
		}
		l := Layer{DiffID: diffs[i], Size: s.size, Open: a.section(s)}
		if name, ok := strings.CutPrefix(file, "blobs/sha256/"); ok && hexName.MatchString(name) {
			l.Digest = "sha256:" + name
		}
		img.Layers = append(img.Layers, l)
	}
	return img, nil
}
