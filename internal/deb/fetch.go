package deb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// A fetcher gets files of mirrors, each into the cache by its digest.
type fetcher struct {
	client *http.Client
	auth   map[string]*url.Userinfo // by host
	cache  string
}

// newFetcher returns a fetcher with the proxies and credentials of apt on this
// host, else those of the environment.
func newFetcher(etc, cache string) *fetcher {
	conf := readAptConf(etc)
	return &fetcher{
		auth:  readAuth(etc),
		cache: cache,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:                 conf.proxy,
				DialContext:           (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
				TLSHandshakeTimeout:   20 * time.Second,
				ResponseHeaderTimeout: 60 * time.Second,
				MaxIdleConnsPerHost:   parallel,
				IdleConnTimeout:       30 * time.Second,
				DisableCompression:    true, // what is signed is what is on the wire
			},
			CheckRedirect: func(r *http.Request, via []*http.Request) error {
				if len(via) > 5 {
					return errors.New("over 5 redirects")
				}
				if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
					return errors.New("redirected from https to http")
				}
				return nil
			},
		},
	}
}

// errMissing: the mirror answers and does not have it.
var errMissing = errors.New("not there")

// open starts a transfer. The body ends after max bytes at the latest, and with
// an error if nothing comes for a minute.
func (f *fetcher) open(ctx context.Context, where string, max int64) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if u := f.auth[r.URL.Host]; u != nil && r.URL.User == nil {
		r.URL.User = u
	}
	r.Header.Set("User-Agent", "berm")
	resp, err := f.client.Do(r)
	if err != nil {
		cancel(nil)
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err // it repeats the URL, with the user's name
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		cancel(nil)
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
			return nil, errMissing
		}
		return nil, fmt.Errorf("answer %s", short(resp.Status))
	}
	b := &body{r: io.LimitReader(resp.Body, max), under: resp.Body, cancel: cancel}
	b.timer = time.AfterFunc(idle, func() { cancel(errIdle) })
	return b, nil
}

const idle = time.Minute

var errIdle = errors.New("nothing came for a minute")

// A body is an answer's, with a watch on its pace.
type body struct {
	r      io.Reader
	under  io.Closer
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.timer.Reset(idle)
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	err := b.under.Close()
	b.cancel(nil)
	return err
}

// small reads a whole file of at most max bytes.
func (f *fetcher) small(ctx context.Context, where string, max int64) (data []byte, err error) {
	err = f.retry(ctx, where, func() error {
		body, err := f.open(ctx, where, max+1)
		if err != nil {
			return err
		}
		defer body.Close()
		if data, err = io.ReadAll(body); err == nil && int64(len(data)) > max {
			return refused("%s is over %d bytes", where, max)
		}
		return err
	})
	return data, err
}

// retry calls do up to three times. What a mirror does not have, or has wrong,
// is not asked for again.
func (f *fetcher) retry(ctx context.Context, where string, do func() error) error {
	var err error
	var final *api.Error
	for try := range 3 {
		if try > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(try) * time.Second):
			}
		}
		if err = do(); err == nil || errors.Is(err, errMissing) || errors.As(err, &final) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return invalid("look at the network and at apt's proxy settings, or name another mirror", "fetch %s: %v", redact(where), err)
}

// redact is a URL without a password.
func redact(where string) string {
	if u, err := url.Parse(where); err == nil {
		return u.Redacted()
	}
	return "?"
}

// file returns what has a digest and a size, from the cache or the first of
// some places that has it. The descriptor is open for reading, at 0; what it
// reads has been checked. got hears of bytes as they come.
func (f *fetcher) file(ctx context.Context, places []string, want entry, got func(int64)) (*os.File, error) {
	path := filepath.Join(f.cache, want.sha256)
	if file, err := f.cached(path, want); err == nil {
		got(want.size)
		return file, nil
	}
	var last error
	for _, where := range places {
		var file *os.File
		err := f.retry(ctx, where, func() (err error) {
			count := int64(0)
			file, err = f.download(ctx, where, path, want, func(n int64) { count += n; got(n) })
			if err != nil {
				got(-count)
			}
			return err
		})
		if err == nil {
			return file, nil
		}
		if last = err; !errors.Is(err, errMissing) {
			break
		}
	}
	if errors.Is(last, errMissing) {
		return nil, invalid("the mirror is in the middle of an update, or lacks packages: try again, or use another one",
			"the mirror has no %s", redact(places[len(places)-1]))
	}
	return nil, last
}

// cached opens a file of the cache, and looks whether it still is what it was.
func (f *fetcher) cached(path string, want entry) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	n, err := io.Copy(h, file)
	if err == nil && (n != want.size || hex.EncodeToString(h.Sum(nil)) != want.sha256) {
		os.Remove(path) // a torn write of an earlier time; it is fetched again
		err = errMissing
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	now := time.Now()
	os.Chtimes(path, now, now) // for Prune; no harm if it fails
	return file, nil
}

func (f *fetcher) download(ctx context.Context, where, path string, want entry, got func(int64)) (_ *os.File, err error) {
	body, err := f.open(ctx, where, want.size+1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	file, err := os.CreateTemp(f.cache, "part-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, h, counter(got)), body)
	switch {
	case err != nil:
		return nil, err
	case n < want.size:
		return nil, io.ErrUnexpectedEOF
	case n > want.size || hex.EncodeToString(h.Sum(nil)) != want.sha256:
		return nil, refused("%s is not the file that the signed index names", redact(where))
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return nil, err
	}
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

// counter tells how much was written to it.
type counter func(int64)

func (c counter) Write(p []byte) (int, error) {
	c(int64(len(p)))
	return len(p), nil
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// Prune removes from a cache directory what was not used since a time, and
// pieces of transfers that were cut off.
func Prune(cache string, unused time.Time) error {
	list, err := os.ReadDir(cache)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !isSHA256(e.Name()) && !strings.HasPrefix(e.Name(), "part-") {
			continue
		}
		if info.ModTime().Before(unused) {
			if err := os.Remove(filepath.Join(cache, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
