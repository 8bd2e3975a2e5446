package deb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// Options say where packages come from. The zero value, with a Cache, is what
// apt on this host would use.
type Options struct {
	// Mirror is an http or https URL, the directory above dists. Then Suite and
	// Keyring are needed. "": the apt sources of this host for its own
	// distribution, or for another Suite of it.
	Mirror     string
	Suite      string
	Keyring    string   // a file; with a Mirror only
	Components []string // with a Mirror only; none: main, and universe where there is one

	Arch       string // as dpkg names it; "": this host's
	Cache      string // a directory of the caller's alone; made if it is not there
	Recommends bool   // install what packages recommend, too
	// Slim leaves documentation, manuals and translations out, as
	// distributions do for their container images. Copyright files stay.
	Slim bool

	// Progress hears of the work at most ten times a second, from one goroutine
	// at a time. It may be nil.
	Progress func(api.TemplateProgress)

	etc string           // for tests; "": /etc
	now func() time.Time // for tests
}

// An Archive is the verified indexes of some suites. It does not change, and is
// safe for concurrent use.
type Archive struct {
	opt     Options
	sources []source
	keys    map[string][]byte
	fetch   *fetcher
	index   *index
}

// parallel is how many files are fetched at a time.
const parallel = 4

// Open reads the indexes of the sources that the options mean. An error is an
// *api.Error, or the context's.
func Open(ctx context.Context, opt Options) (*Archive, error) {
	opt.etc, opt.Arch = cmp.Or(opt.etc, "/etc"), cmp.Or(opt.Arch, hostArch())
	if opt.now == nil {
		opt.now = time.Now
	}
	if !packageName(opt.Arch) {
		return nil, invalid("as dpkg --print-architecture says it", "%q is not an architecture", short(opt.Arch))
	}
	if opt.Progress == nil {
		opt.Progress = func(api.TemplateProgress) {}
	}
	if err := os.MkdirAll(opt.Cache, 0o700); err != nil {
		return nil, err
	}
	var err error
	a := &Archive{opt: opt, keys: map[string][]byte{}, fetch: newFetcher(opt.etc, opt.Cache), index: newIndex(opt.Arch)}
	if opt.Mirror != "" {
		a.sources, err = namedSources(opt)
	} else if opt.Keyring != "" {
		err = invalid(sourcesHint, "a keyring without a mirror")
	} else {
		a.sources, err = hostSources(opt.etc, opt.Suite)
	}
	if err != nil {
		return nil, err
	}
	for i, s := range a.sources {
		opt.Progress(api.TemplateProgress{Phase: "index", Item: s.suite, Done: int64(i), Total: int64(len(a.sources))})
		if err := a.add(ctx, &a.sources[i]); err != nil {
			return nil, err
		}
	}
	a.index.finish()
	return a, nil
}

// add reads one source.
func (a *Archive) add(ctx context.Context, s *source) error {
	if !validSuite(s.suite) {
		return invalid(sourcesHint, "%q is not the name of a suite", short(s.suite))
	}
	if len(s.archs) > 0 && !slices.Contains(s.archs, a.opt.Arch) {
		return nil
	}
	if u := s.user(); u != nil {
		a.fetch.auth[u.Host] = u.User
		u.User = nil
		s.uri = u.String()
	}
	ring, err := loadKeys(a.opt.etc, s.signedBy)
	if err != nil {
		return err
	}
	r, err := a.release(ctx, *s, ring)
	if err != nil {
		return err
	}
	if len(a.index.origins) > 0 && !slices.Contains(a.index.origins, r.origin) {
		return refused("%s says it is of %q, the suites before it of %q", s.uri, short(r.origin), short(a.index.origins[0]))
	}
	a.index.origins = append(a.index.origins, r.origin)
	if len(s.components) == 0 {
		s.components = []string{"main"}
		if slices.Contains(r.components, "universe") {
			s.components = append(s.components, "universe")
		}
	}
	if len(r.archs) > 0 && !slices.Contains(r.archs, a.opt.Arch) {
		return invalid("use a mirror of it", "suite %s of %s has no packages for %s", s.suite, s.uri, a.opt.Arch)
	}
	for _, c := range s.components {
		if !validSuite(c) {
			return invalid(sourcesHint, "%q is not the name of a component", short(c))
		}
		if err := a.packages(ctx, *s, r, c, a.opt.Arch); err != nil {
			return err
		}
		if !r.allInArch {
			if err := a.packages(ctx, *s, r, c, "all"); err != nil {
				return err
			}
		}
	}
	for name, data := range ring.files {
		a.keys[name] = data
	}
	return nil
}

// release fetches and verifies what a suite says of itself.
func (a *Archive) release(ctx context.Context, s source, ring keyring) (release, error) {
	dist := s.uri + "/dists/" + s.suite + "/"
	now := a.opt.now()
	data, err := a.fetch.small(ctx, dist+"InRelease", maxRelease)
	var text []byte
	if err == nil {
		text, err = openInRelease(ring.keys, data, now)
	} else if errors.Is(err, errMissing) {
		text, err = a.detached(ctx, dist, ring, now)
	}
	var typed *api.Error
	switch {
	case errors.As(err, &typed) || ctx.Err() != nil:
		return release{}, err
	case errors.Is(err, errMissing):
		return release{}, invalid(sourcesHint, "%s has no signed suite %s", s.uri, s.suite)
	case err != nil:
		return release{}, refused("suite %s of %s: signature: %v", s.suite, s.uri, err)
	}
	r, err := parseRelease(text)
	if err != nil {
		return release{}, refused("suite %s of %s: its Release file: %v", s.suite, s.uri, err)
	}
	return r, r.check(s, now)
}

func (a *Archive) detached(ctx context.Context, dist string, ring keyring, now time.Time) ([]byte, error) {
	data, err := a.fetch.small(ctx, dist+"Release", maxRelease)
	if err != nil {
		return nil, err
	}
	sig, err := a.fetch.small(ctx, dist+"Release.gpg", maxRelease)
	if errors.Is(err, errMissing) {
		return nil, errUnsigned
	}
	if err != nil {
		return nil, err
	}
	return openRelease(ring.keys, data, sig, now)
}

// packages reads one index into a.index.
func (a *Archive) packages(ctx context.Context, s source, r release, component, arch string) error {
	dir := component + "/binary-" + arch + "/"
	for _, kind := range []string{".xz", ".gz", ".zst", ""} {
		want, ok := r.files[dir+"Packages"+kind]
		if !ok {
			continue
		}
		if want.size > maxIndex && kind != "" || want.size > maxIndexRaw {
			return refused("index %s of %s has %d bytes", dir, s.uri, want.size)
		}
		dist := s.uri + "/dists/" + s.suite + "/"
		places := []string{dist + dir + "Packages" + kind}
		if r.byHash {
			places = []string{dist + dir + "by-hash/SHA256/" + want.sha256, places[0]}
		}
		file, err := a.fetch.file(ctx, places, want, func(int64) {})
		if err != nil {
			return err
		}
		defer file.Close()
		plain, err := decompress(file, kind)
		if err != nil {
			return refused("index %s of %s: %v", dir, s.uri, err)
		}
		defer plain.Close()
		if err := a.index.read(io.LimitReader(plain, maxIndexRaw), s, r.optional); err != nil {
			return refused("index %s of %s: %v", dir, s.uri, err)
		}
		return nil
	}
	if arch == "all" {
		return nil
	}
	return invalid("name components that it has", "suite %s of %s has no component %s for %s", s.suite, s.uri, component, arch)
}

// Fetch gets the .debs of a set, four at a time, and checks them. The files are
// in the order of the set, open for reading; the caller closes them.
func (a *Archive) Fetch(ctx context.Context, set Set) (_ []*os.File, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total, _ := set.Size()
	report := &reporter{say: a.opt.Progress, total: total}
	files := make([]*os.File, len(set.Packages))
	var wg sync.WaitGroup
	next := make(chan int)
	for range parallel {
		wg.Go(func() {
			for i := range next {
				p := set.Packages[i]
				f, err := a.fetch.file(ctx, []string{p.Mirror + "/" + p.Filename}, entry{p.SHA256, p.Size},
					func(n int64) { report.add(p.Name, n) })
				if err != nil {
					cancel(err)
				}
				files[i] = f
			}
		})
	}
	for i := range set.Packages {
		next <- i
	}
	close(next)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
		return nil, err
	}
	report.last()
	return files, nil
}

// A reporter adds up what several transfers say.
type reporter struct {
	mu    sync.Mutex
	say   func(api.TemplateProgress)
	done  int64
	total int64
	at    time.Time
}

func (r *reporter) add(item string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += n
	if now := time.Now(); now.Sub(r.at) >= 100*time.Millisecond {
		r.at = now
		r.say(api.TemplateProgress{Phase: "download", Item: item, Done: r.done, Total: r.total})
	}
}

func (r *reporter) last() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say(api.TemplateProgress{Phase: "download", Done: r.total, Total: r.total})
}

// sourcesList is what apt inside reads to go on with the same suites.
func (a *Archive) sourcesList() string {
	var b strings.Builder
	for _, s := range a.sources {
		fmt.Fprintf(&b, "deb %s %s %s\n", s.uri, s.suite, strings.Join(s.components, " "))
	}
	return b.String()
}
