package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bermhq/berm/api"
)

// Bounds of what is read of an image before its layers.
const (
	maxManifest  = 4 << 20 // of an index or manifest
	maxConfig    = 8 << 20
	maxLayers    = 128
	maxManifests = 1024 // in one index
	maxNesting   = 3    // of an index in an index
	maxSettings  = 1 << 20
)

// Kinds of layers that the library has no names for.
const (
	dockerZstd     types.MediaType = "application/vnd.docker.image.rootfs.diff.tar.zstd"
	restrictedZstd types.MediaType = "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
)

var anyPlatform = regexp.MustCompile(`^[a-z0-9]{1,20}/[a-z0-9]{1,20}(/[a-z0-9.]{1,20})?$`)

// parsePlatform reads os/arch or os/arch/variant; "" is this host's.
func parsePlatform(s string) (v1.Platform, error) {
	if s == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	if !anyPlatform.MatchString(s) || !strings.HasPrefix(s, "linux/") {
		return v1.Platform{}, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("platform %.60q: it is not of the form linux/ARCH", s),
			Hint: "--platform linux/amd64"}
	}
	parts := strings.Split(s, "/")
	p := v1.Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

// fits says whether what an image was made for is what is wanted. Saying
// nothing of a variant means the plain one.
func fits(have, want v1.Platform) bool {
	variant := func(p v1.Platform) string {
		plain := map[string]string{"amd64": "v1", "arm64": "v8", "arm": "v7"}
		if p.Variant == "" {
			return plain[p.Architecture]
		}
		return p.Variant
	}
	return have.OS == want.OS && have.Architecture == want.Architecture && variant(have) == variant(want)
}

func platformText(p v1.Platform) string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return clean(s, 60)
}

// A reader gets a small blob that a descriptor names and has checked it
// against digest and size.
type reader func(v1.Descriptor) ([]byte, error)

// checkSmall looks at a descriptor before a reader follows it.
func checkSmall(what string, d v1.Descriptor, max int64) error {
	switch {
	case d.Digest.Algorithm != "sha256":
		return unusable(what, "push it again with digests of sha256", "a part of it is named by %q, not by a digest of sha256", clean(d.Digest.Algorithm, 20))
	case d.Size < 0:
		return refused(what, "%s has a negative size", short(d.Digest.String()))
	case d.Size > max:
		return tooLarge(what, "%s, a manifest or configuration, has %s", short(d.Digest.String()), human(d.Size))
	}
	return nil
}

// kind is what a manifest is, whatever it was called on the way.
type kind struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     types.MediaType `json:"mediaType"`
	Manifests     json.RawMessage `json:"manifests"`
	Layers        json.RawMessage `json:"layers"`
	FSLayers      json.RawMessage `json:"fsLayers"`
}

// isIndex tells an index from the manifest of one image. header is what the
// content was served as, "" if nobody said.
func isIndex(what string, raw []byte, header string) (bool, error) {
	var k kind
	if err := json.Unmarshal(raw, &k); err != nil {
		return false, unusable(what, "name a container image", "what is there is no manifest of an image")
	}
	called := k.MediaType
	if called == "" {
		called = types.MediaType(strings.TrimSpace(strings.SplitN(header, ";", 2)[0]))
	}
	switch {
	case k.SchemaVersion == 1 || k.FSLayers != nil:
		return false, unusable(what, "push it again with a tool of this decade", "its manifest is of the old schema 1, which names no digests of layers")
	case k.Manifests != nil && k.Layers != nil:
		return false, refused(what, "its manifest is an index and an image at once")
	case k.Manifests != nil && called != types.OCIManifestSchema1 && called != types.DockerManifestSchema2:
		return true, nil
	case k.Layers != nil && called != types.OCIImageIndex && called != types.DockerManifestList:
		return false, nil
	case k.Manifests != nil || k.Layers != nil:
		return false, refused(what, "its manifest is not what it calls itself, %s", clean(string(called), 80))
	}
	return false, unusable(what, "name a container image", "what is there is neither an image nor an index of images")
}

// choose goes from a manifest or index to the manifest for a platform.
func choose(what string, raw []byte, header string, want v1.Platform, read reader) ([]byte, error) {
	return chooseAt(what, raw, header, want, read, 0)
}

func chooseAt(what string, raw []byte, header string, want v1.Platform, read reader, depth int) ([]byte, error) {
	index, err := isIndex(what, raw, header)
	if err != nil || !index {
		return raw, err
	}
	if depth >= maxNesting {
		return nil, refused(what, "an index in an index in an index")
	}
	var list v1.IndexManifest
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, unusable(what, "name a container image", "its index cannot be read: %s", clean(err.Error(), 120))
	}
	if len(list.Manifests) > maxManifests {
		return nil, refused(what, "its index names %d manifests; the most is %d", len(list.Manifests), maxManifests)
	}
	var there []string
	var nested []v1.Descriptor
	for _, d := range list.Manifests {
		switch {
		case d.Platform != nil && fits(*d.Platform, want), d.Platform == nil && len(list.Manifests) == 1:
			sub, err := read(d)
			if err != nil {
				return nil, err
			}
			return chooseAt(what, sub, string(d.MediaType), want, read, depth+1)
		case d.Platform == nil && d.MediaType.IsIndex():
			nested = append(nested, d)
		case d.Platform != nil && d.Platform.OS != "unknown":
			if p := platformText(*d.Platform); !slices.Contains(there, p) && len(there) < 40 {
				there = append(there, p)
			}
		}
	}
	for _, d := range nested[:min(len(nested), 8)] {
		sub, err := read(d)
		if err == nil {
			sub, err = chooseAt(what, sub, string(d.MediaType), want, read, depth+1)
		}
		if err == nil {
			return sub, nil
		}
	}
	return nil, noPlatform(what, want, there)
}

func noPlatform(what string, want v1.Platform, there []string) *api.Error {
	e := unusable(what, "berm has no emulation; use an image made for this machine", "there is nothing for %s", platformText(want))
	if len(there) > 0 {
		slices.Sort(there)
		e.Message += "; there is " + strings.Join(there, ", ")
		e.Hint += ", or take one that is there: --platform " + there[0]
	}
	return e
}

// parse reads a manifest and its configuration. The layers of the image are
// without Open.
func parse(what string, raw []byte, want v1.Platform, read reader) (*Image, error) {
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, unusable(what, "name a container image", "its manifest cannot be read: %s", clean(err.Error(), 120))
	}
	switch m.Config.MediaType {
	case types.OCIConfigJSON, types.DockerConfigJSON:
	default:
		return nil, unusable(what, "name a container image", "it is no container image: its configuration is %q", clean(string(m.Config.MediaType), 80))
	}
	if len(m.Layers) > maxLayers {
		return nil, unusable(what, "squash it", "it has %d layers; the most is %d", len(m.Layers), maxLayers)
	}
	conf, err := read(m.Config)
	if err != nil {
		return nil, err
	}
	img, diffs, err := parseConfig(what, conf, want)
	if err != nil {
		return nil, err
	}
	if len(diffs) != len(m.Layers) {
		return nil, refused(what, "its manifest has %d layers, its configuration %d", len(m.Layers), len(diffs))
	}
	img.Digest = digestOf(raw)
	for i, d := range m.Layers {
		if err := checkLayer(what, i, d); err != nil {
			return nil, err
		}
		img.Layers = append(img.Layers, Layer{Digest: d.Digest.String(), DiffID: diffs[i], Size: d.Size})
	}
	return img, nil
}

// checkLayer refuses what no import of ours understands, and what would have
// us fetch from somewhere else.
func checkLayer(what string, i int, d v1.Descriptor) error {
	switch d.MediaType {
	case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer, dockerZstd:
	case types.DockerForeignLayer, types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer, restrictedZstd:
		return unusable(what, "use an image whose layers its registry has", "layer %d is a foreign one, to be fetched from elsewhere", i+1)
	default:
		return unusable(what, "use an image of ordinary layers", "layer %d is of an unknown kind, %q", i+1, clean(string(d.MediaType), 80))
	}
	switch {
	case len(d.URLs) > 0:
		return unusable(what, "use an image whose layers its registry has", "layer %d is to be fetched from elsewhere", i+1)
	case d.Digest.Algorithm != "sha256":
		return unusable(what, "push it again with digests of sha256", "layer %d is named by %s", i+1, clean(d.Digest.Algorithm, 20))
	case d.Size < 0:
		return refused(what, "layer %d has a negative size", i+1)
	}
	return nil
}

// parseConfig reads an image's configuration and the digests of its layers'
// tars. An image that was made for something else than wanted is an error.
func parseConfig(what string, raw []byte, want v1.Platform) (*Image, []string, error) {
	var c v1.ConfigFile
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, nil, unusable(what, "name a container image", "its configuration cannot be read: %s", clean(err.Error(), 120))
	}
	have := v1.Platform{OS: c.OS, Architecture: c.Architecture, Variant: c.Variant}
	if c.OS == "" && c.Architecture == "" {
		have = want // old tools wrote neither
	}
	if !fits(have, want) {
		return nil, nil, noPlatform(what, want, []string{platformText(have)})
	}
	if len(c.RootFS.DiffIDs) > maxLayers {
		return nil, nil, unusable(what, "squash it", "it has %d layers; the most is %d", len(c.RootFS.DiffIDs), maxLayers)
	}
	img := &Image{Platform: platformText(have), Config: api.TemplateConfig{
		Env: c.Config.Env, User: c.Config.User, Workdir: c.Config.WorkingDir,
		Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd,
	}}
	if err := checkSettings(what, img.Config); err != nil {
		return nil, nil, err
	}
	var diffs []string
	for i, d := range c.RootFS.DiffIDs {
		if d.Algorithm != "sha256" {
			return nil, nil, unusable(what, "push it again with digests of sha256", "layer %d is named by %s", i+1, clean(d.Algorithm, 20))
		}
		diffs = append(diffs, d.String())
	}
	return img, diffs, nil
}

// checkSettings bounds what will become environment and arguments of a
// program.
func checkSettings(what string, c api.TemplateConfig) error {
	n := len(c.User) + len(c.Workdir)
	all := slices.Concat(c.Env, c.Entrypoint, c.Cmd)
	for _, s := range append(all, c.User, c.Workdir) {
		if n += len(s); strings.ContainsRune(s, 0) {
			return refused(what, "its configuration has a zero byte in a word")
		}
	}
	if n > maxSettings || len(all) > 10000 {
		return tooLarge(what, "environment and command line in its configuration have %d words, %s", len(all), human(int64(n)))
	}
	return nil
}

func digestOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// short is a digest as people recognise it.
func short(digest string) string {
	if hex, ok := strings.CutPrefix(digest, "sha256:"); ok && len(hex) > 12 {
		return hex[:12]
	}
	return clean(digest, 20)
}
