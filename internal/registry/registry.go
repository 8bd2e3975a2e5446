// Package registry reads and writes container images: from registries, from
// the archives that docker save makes and from OCI layouts.
package registry

import (
	"io"

	"github.com/bermhq/berm/api"
)

// Image is one image for one platform. Its layers' bytes have been checked
// against their digests when they are read to the end.
type Image struct {
	Ref      string // as asked, with the digest that it meant
	Digest   string // of the manifest, sha256:...
	Platform string // linux/amd64
	Config   api.TemplateConfig
	Layers   []Layer // lowest first
}

// Layer is one archive of changes, compressed or not.
type Layer struct {
	Digest string // of the bytes that Open gives, sha256:...
	DiffID string // of the tar inside
	Size   int64  // bytes that Open gives
	Open   func() (io.ReadCloser, error)
}
