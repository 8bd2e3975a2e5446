package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bermhq/berm/api"
)

// Phases of a pull, as progress names them.
const (
	PhaseResolve  = "resolve"
	PhaseDownload = "download"
)

// DefaultMaxBytes is the most that the layers of an image may have as they are
// sent.
const DefaultMaxBytes = 8 << 30

// Options adjust Pull. Dir must be set; the rest has defaults.
type Options struct {
	Platform    string      // linux/amd64; "": this host's
	Dir         string      // an existing directory for the layers' files
	MaxBytes    int64       // of all layers as they are sent; 0: DefaultMaxBytes
	PlainHTTP   []string    // registries, host or host:port, that may be spoken to without TLS
	Plain       bool        // the reference's own registry may, too
	Credentials Credentials // nil: none
	// Have says how many of the lowest layers of an image are here already. They
	// are not fetched, and have no Open. nil: none.
	Have func(*Image) int
	// Progress hears of the phases. In PhaseDownload a report without Item is
	// of all layers together, one with Item of the layer with that short digest.
	// It is called by one goroutine at a time, some ten times a second.
	Progress func(api.TemplateProgress)

	// Transport is the wire; nil: HTTP with the proxies and certificates of this
	// process's environment.
	Transport http.RoundTripper
	Idle      time.Duration // how long a registry may send next to nothing; 0: a minute
}

// resolveTimeout bounds everything before the layers.
const resolveTimeout = 5 * time.Minute

type puller struct {
	ref    name.Reference
	what   string // for errors
	opt    Options
	client *http.Client
	login  Login
	noted  error // why there may be no login
	close  func()
}

// Pull fetches an image for one platform. Its layers are files in opt.Dir,
// compared with their digests and sizes, and Open of each gives an *os.File.
// After an error nothing of it is left there.
func Pull(ctx context.Context, ref string, opt Options) (*Image, error) {
	r, err := parseRef(ref, opt.PlainHTTP)
	if err == nil && opt.Plain {
		opt.PlainHTTP = append(slices.Clone(opt.PlainHTTP), r.Context().RegistryStr())
		r, err = parseRef(ref, opt.PlainHTTP)
	}
	if err != nil {
		return nil, err
	}
	want, err := parsePlatform(opt.Platform)
	if err != nil {
		return nil, err
	}
	opt.MaxBytes = cmp.Or(opt.MaxBytes, DefaultMaxBytes)
	opt.Idle = cmp.Or(opt.Idle, time.Minute)
	p := &puller{ref: r, what: "image " + canonical(r), opt: opt, close: func() {}}
	defer func() { p.close() }()
	if opt.Progress != nil {
		opt.Progress(api.TemplateProgress{Phase: PhaseResolve, Item: canonical(r)})
	}
	img, err := p.resolve(ctx, want)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	img.Ref = strings.TrimSuffix(canonical(r), "@"+img.Ref) + "@" + img.Ref
	have := 0
	if opt.Have != nil {
		have = min(opt.Have(img), len(img.Layers))
	}
	if err := p.download(ctx, img.Layers[have:]); err != nil {
		return nil, p.explain(ctx, err)
	}
	return img, nil
}

// resolve finds the image and everything about it but its layers. Ref of the
// result is the digest of what the reference named, an index perhaps.
func (p *puller) resolve(ctx context.Context, want v1.Platform) (*Image, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	top, header, err := p.top(ctx)
	if err != nil {
		return nil, err
	}
	read := func(d v1.Descriptor) ([]byte, error) { return p.manifest(ctx, d) }
	raw, err := choose(p.what, top, header, want, read)
	if err != nil {
		return nil, err
	}
	img, err := parse(p.what, raw, want, func(d v1.Descriptor) ([]byte, error) { return p.config(ctx, d) })
	if err != nil {
		return nil, err
	}
	img.Ref = digestOf(top)
	return img, nil
}

// connect shakes hands with the registry.
func (p *puller) connect(ctx context.Context) error {
	repo := p.ref.Context()
	next := p.opt.Transport
	if next == nil {
		own := newTransport(p.opt.Idle)
		p.close, next = own.CloseIdleConnections, own
	}
	host := repo.RegistryStr()
	g := &guard{next: next, pause: pause, idle: p.opt.Idle, plain: func(h string) bool {
		return slices.Contains(p.opt.PlainHTTP, h) || isLoopback(host) && isLoopback(h)
	}}
	auth := authn.Anonymous
	if p.opt.Credentials != nil {
		login, err := p.opt.Credentials(ctx, host, repo.RepositoryStr())
		if err != nil {
			p.noted = err
		}
		if p.login = login; login != (Login{}) {
			auth = authn.FromConfig(authn.AuthConfig{Username: login.Username, Password: login.Password,
				IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken})
		}
	}
	wire, err := transport.NewWithContext(ctx, repo.Registry, auth, transport.NewUserAgent(g, "berm"), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return err
	}
	p.client = &http.Client{Transport: wire, CheckRedirect: checkRedirect}
	return nil
}

var acceptable = strings.Join([]string{
	string(types.OCIImageIndex), string(types.DockerManifestList), string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}, ", ")

// get asks for something of the repository, of at most most bytes.
func (p *puller) get(ctx context.Context, sort, id string, most int64) (*http.Response, error) {
	repo := p.ref.Context()
	url := fmt.Sprintf("%s://%s/v2/%s/%s/%s", repo.Scheme(), repo.RegistryStr(), repo.RepositoryStr(), sort, id)
	req, err := http.NewRequestWithContext(withLength(ctx, most), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if sort == "manifests" {
		req.Header.Set("Accept", acceptable)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp, nil
}

// small reads an answer that is kept in memory.
func (p *puller) small(ctx context.Context, sort, id string, most int64) ([]byte, string, error) {
	for try := 1; ; try++ {
		raw, header, err := p.trySmall(ctx, sort, id, most)
		if err == nil || try == layerTries || !transient(err) {
			return raw, header, err
		}
		if err := pause(ctx, firstWait<<(try-1)); err != nil {
			return nil, "", err
		}
	}
}

func (p *puller) trySmall(ctx context.Context, sort, id string, most int64) ([]byte, string, error) {
	resp, err := p.get(ctx, sort, id, most)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if errors.Is(err, errAnswer) {
		return nil, "", tooLarge(p.what, "a manifest or configuration of it has more than %s", human(most))
	}
	return raw, resp.Header.Get("Content-Type"), err
}

// top gets what the reference names.
func (p *puller) top(ctx context.Context) ([]byte, string, error) {
	raw, header, err := p.small(ctx, "manifests", p.ref.Identifier(), maxManifest)
	if err != nil {
		return nil, "", err
	}
	if d, ok := p.ref.(name.Digest); ok && digestOf(raw) != d.DigestStr() {
		return nil, "", refused(p.what, "the manifest that came has the digest %s", short(digestOf(raw)))
	}
	return raw, header, nil
}

func (p *puller) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	return p.checked(ctx, "manifests", d, maxManifest)
}

func (p *puller) config(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	return p.checked(ctx, "blobs", d, maxConfig)
}

func (p *puller) checked(ctx context.Context, sort string, d v1.Descriptor, most int64) ([]byte, error) {
	if err := checkSmall(p.what, d, most); err != nil {
		return nil, err
	}
	raw, _, err := p.small(ctx, sort, d.Digest.String(), most)
	if err != nil {
		return nil, err
	}
	return raw, checkBytes(p.what, raw, d)
}

// checkBytes compares a small blob with its descriptor.
func checkBytes(what string, raw []byte, d v1.Descriptor) error {
	kind := "manifest"
	if d.MediaType.IsConfig() {
		kind = "configuration"
	}
	if got := digestOf(raw); got != d.Digest.String() {
		return refused(what, "the %s %s has the digest %s", kind, short(d.Digest.String()), short(got))
	}
	if int64(len(raw)) != d.Size {
		return refused(what, "the %s %s has %d bytes, not %d", kind, short(d.Digest.String()), len(raw), d.Size)
	}
	return nil
}

// openLayer opens a file that download made.
func (p *puller) openLayer(path string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return os.Open(path) }
}
