package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

const (
	atOnce     = 3 // layers that come at the same time
	layerTries = 3
)

// download fetches layers, each once, and gives each an Open.
func (p *puller) download(ctx context.Context, layers []Layer) (err error) {
	var total int64
	var todo []Layer
	seen := map[string]int64{}
	for _, l := range layers {
		if size, twice := seen[l.Digest]; twice && size != l.Size {
			return refused(p.what, "layer %s is named with two sizes", short(l.Digest))
		} else if twice {
			continue
		}
		seen[l.Digest] = l.Size
		if todo = append(todo, l); l.Size > p.opt.MaxBytes-total {
			return tooLarge(p.what, "its layers have more than the limit of %s", human(p.opt.MaxBytes))
		}
		total += l.Size
	}
	defer func() {
		if err != nil {
			for _, l := range todo {
				os.Remove(p.path(l))
			}
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	report := &reporter{to: p.opt.Progress, total: total}
	report.add("", 0, 0)
	var wg sync.WaitGroup
	queue := make(chan Layer)
	for range min(atOnce, len(todo)) {
		wg.Go(func() {
			for l := range queue {
				if err := p.layer(ctx, l, report); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, l := range todo {
		select {
		case queue <- l:
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, l := range layers {
		layers[i].Open = p.openLayer(p.path(l))
	}
	return nil
}

func (p *puller) path(l Layer) string {
	return filepath.Join(p.opt.Dir, "sha256-"+l.Digest[len("sha256:"):])
}

// layer fetches one, from its start again when the connection broke.
func (p *puller) layer(ctx context.Context, l Layer, report *reporter) error {
	for try := 1; ; try++ {
		n, err := p.tryLayer(ctx, l, report)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if try == layerTries || !transient(err) {
			return err
		}
		report.add(short(l.Digest), -n, l.Size)
		if err := pause(ctx, firstWait<<(try-1)); err != nil {
			return err
		}
	}
}

// tryLayer writes a layer to its file while it compares it. It returns how
// many bytes it reported.
func (p *puller) tryLayer(ctx context.Context, l Layer, report *reporter) (int64, error) {
	resp, err := p.get(ctx, "blobs", l.Digest, l.Size+1)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	what := p.what + ": layer " + short(l.Digest)
	if resp.ContentLength >= 0 && resp.ContentLength != l.Size {
		return 0, refused(what, "%d bytes are coming, and the manifest says %d", resp.ContentLength, l.Size)
	}
	f, err := os.OpenFile(p.path(l), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 256<<10)
	var n int64
	for {
		k, err := resp.Body.Read(buf)
		n += int64(k)
		if errors.Is(err, errAnswer) || n > l.Size {
			return n, refused(what, "it is longer than the %d bytes that the manifest says", l.Size)
		}
		h.Write(buf[:k])
		if _, err := f.Write(buf[:k]); err != nil {
			return n, err
		}
		report.add(short(l.Digest), int64(k), l.Size)
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if n != l.Size {
		return n, refused(what, "it ends after %d bytes, and the manifest says %d", n, l.Size)
	}
	if got := sum(h); got != l.Digest {
		return n, refused(what, "its bytes have the digest %s", short(got))
	}
	return n, f.Close()
}

// A reporter tells of bytes, of each layer and of all, not too often.
type reporter struct {
	to    func(api.TemplateProgress)
	total int64

	mu     sync.Mutex
	done   int64
	layers map[string]*partial
	told   time.Time
}

type partial struct {
	done int64
	told time.Time
}

func (r *reporter) add(item string, n, size int64) {
	if r.to == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if item != "" {
		if r.layers == nil {
			r.layers = map[string]*partial{}
		}
		l := r.layers[item]
		if l == nil {
			l = &partial{}
			r.layers[item] = l
		}
		if l.done += n; l.done == size || now.Sub(l.told) > time.Second {
			l.told = now
			r.to(api.TemplateProgress{Phase: PhaseDownload, Item: item, Done: l.done, Total: size})
		}
	}
	if r.done += n; r.done == r.total || now.Sub(r.told) > 200*time.Millisecond {
		r.told = now
		r.to(api.TemplateProgress{Phase: PhaseDownload, Done: r.done, Total: r.total})
	}
}
