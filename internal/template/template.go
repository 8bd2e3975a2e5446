// Package template keeps templates: named roots of shared layers, with the
// defaults of their processes.
//
// A Store does it where the rights to the state directory are: in the process
// that a person starts, or in a child that a daemon makes before it gives its
// rights up. A Client asks such a process over a socket. What strangers wrote
// (archives, layers, packages) is parsed by neither, but by a maker: a process
// without rights, files or network that reads from descriptors and writes one
// image to another.
package template

import (
	"context"
	"io"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// Kinds of a Job.
const (
	JobImport = "import" // a root file system as an archive, docker save and OCI layouts too
	JobPull   = "pull"   // an image from a registry
	JobDebs   = "debs"   // a distribution's packages, unpacked and not yet configured
	JobLayer  = "layer"  // a tar of changes on top of Below
	JobTag    = "tag"    // Below gets a name and defaults
)

// A Job makes one template, or a root without a name that a build goes on with.
type Job struct {
	Kind    string `json:"kind"`
	Name    string `json:"name,omitempty"` // "": without a name, kept while its Key is used
	Replace bool   `json:"replace,omitempty"`
	Source  string `json:"source,omitempty"` // what api.Template.Source will say; "": by kind
	// Key, where set, names the result by what it was made from: a Job with the
	// same Key is answered from the first, and its archive is not read.
	Key string `json:"key,omitempty"`

	Ref      string `json:"ref,omitempty"`      // pull
	Platform string `json:"platform,omitempty"` // pull and import; "": this host's
	// PlainHTTP lets Ref's registry be asked without TLS.
	PlainHTTP bool        `json:"plain_http,omitempty"`
	Debs      []string    `json:"debs,omitempty"`
	Suite     string      `json:"suite,omitempty"`
	Mirror    string      `json:"mirror,omitempty"`  // debs; "": as this host
	Keyring   []byte      `json:"keyring,omitempty"` // debs: the keys that may have signed the index
	Below     *image.Root `json:"below,omitempty"`   // layer and tag
	Prefix    string      `json:"prefix,omitempty"`  // layer: everything in the archive goes below this directory
	// Owner, for a layer with a Prefix, is whose everything becomes; nil: as the
	// archive says.
	Owner *[2]uint32 `json:"owner,omitempty"`

	// Config is laid over what the source says, field by field.
	Config   api.TemplateConfig `json:"config,omitzero"`
	MaxBytes int64              `json:"max_bytes,omitempty"` // of the whole root; 0: image.DefaultMaxBytes
}

// Service keeps templates. Store and Client are it.
//
// All calls are safe for concurrent use. Errors are *api.Error, or the
// context's. Do reads in to its end or not at all; progress is called from one
// goroutine, at most some ten times a second, and may be nil.
type Service interface {
	// Resolve finds the root of a name, by its aliases too.
	Resolve(ctx context.Context, name string) (image.Root, error)
	List(ctx context.Context) ([]api.Template, error)
	Get(ctx context.Context, name string) (api.Template, error)
	// Remove forgets a name; layers that nothing else uses go with it.
	Remove(ctx context.Context, name string) error
	// Cached is the root that a Job with this Key made.
	Cached(ctx context.Context, key string) (image.Root, bool)
	Do(ctx context.Context, job Job, in io.Reader, progress func(api.TemplateProgress)) (Made, error)
	// Export writes a template as an archive: "oci", "docker" or "tar".
	Export(ctx context.Context, name, format string, out io.Writer) error
}

// Made is what a Job made.
type Made struct {
	Template api.Template `json:"template"`
	Root     image.Root   `json:"root"`
}
