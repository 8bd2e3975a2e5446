package preset

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/bermhq/berm/internal/policy"
)

// A fetcher asks registries. It sends no credential, since none could be used
// inside either.
type fetcher struct {
	http *http.Client
	via  []string // hosts that the last answer came over

	public func(netip.Addr) bool
	house  bool // all that answered last time has an address that is not public
}

func newFetcher(ca string) *fetcher {
	f := &fetcher{public: policy.Public}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM([]byte(ca))
	f.http = &http.Client{
		Timeout:   fetchFor,
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}, ResponseHeaderTimeout: fetchFor},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return fmt.Errorf("more than 3 redirects")
			}
			if _, host := clean(r.URL.String()); host != "" {
				f.via = append(f.via, host)
			}
			return nil
		},
	}
	return f
}

// get fetches one document; nil is one that is not there.
func (f *fetcher) get(ctx context.Context, address string) (at *url.URL, _ []byte, err error) {
	f.via, f.house = nil, true
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		at, err := netip.ParseAddrPort(i.Conn.RemoteAddr().String())
		f.house = f.house && err == nil && !f.public(at.Addr())
	}})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("User-Agent", "berm")
	r.Header.Set("Accept", "text/html, application/json;q=0.9, */*;q=0.1")
	began := time.Now()
	resp, err := f.http.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("its registry could not be asked where its files are (after %s): %s", time.Since(began).Round(time.Millisecond), redact(err.Error()))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return resp.Request.URL, nil, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, nil, fmt.Errorf("GET %s: %s: without a password, and none of yours goes into a sandbox", address, resp.Status)
	default:
		return nil, nil, fmt.Errorf("GET %s: %s", address, resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	return resp.Request.URL, b, err
}

var href = regexp.MustCompile(`(?i)<a\b[^>]*?\bhref\s*=\s*["']([^"'#?]+)`)

// look returns the hosts that files are at.
func (f *fetcher) look(ctx context.Context, l Look) (hosts []string, err error) {
	at, b, err := f.get(ctx, l.URL)
	if err != nil {
		return nil, err
	}
	hosts = slices.Clone(f.via)
	add := func(ref string) error {
		u, err := at.Parse(ref)
		if err != nil {
			return nil // one bad link of many
		}
		_, host := clean(u.String())
		if host == "" || slices.Contains(hosts, host) {
			return nil
		}
		if hosts = append(hosts, host); len(hosts) > maxHosts {
			return fmt.Errorf("GET %s: it points to more than %d hosts", l.URL, maxHosts)
		}
		return nil
	}
	if b == nil {
		return hosts, nil
	}
	switch l.Kind {
	case "page":
		for _, m := range href.FindAllSubmatch(b, -1) {
			if err := add(string(m[1])); err != nil {
				return nil, err
			}
		}
	case "tarball":
		var doc struct {
			Dist struct {
				Tarball string `json:"tarball"`
			} `json:"dist"`
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			return nil, fmt.Errorf("GET %s: the answer is not JSON", l.URL)
		}
		add(doc.Dist.Tarball)
	case "dl":
		var doc struct {
			DL string `json:"dl"`
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			return nil, fmt.Errorf("GET %s: the answer is not JSON", l.URL)
		}
		add(template.ReplaceAllString(doc.DL, "x"))
	}
	return hosts, nil
}

// template is a part of a URL that cargo fills in.
var template = regexp.MustCompile(`\{[a-z0-9-]+\}`)
