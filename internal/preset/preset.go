// Package preset asks this host's own package managers what registries they
// use, so that the same ones can be allowed and configured inside. It holds no
// registry's name.
//
// It works in two steps, which a daemon takes in two processes: Ask runs the
// client, with the rights and the environment of whoever started Berm, and
// speaks to nobody else; Complete, which needs no rights, asks the registry
// where it keeps its files. Nothing that either returns holds a password.
package preset

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of what clients and registries may say.
const (
	askFor    = 15 * time.Second // one client; npm on a busy host takes seconds
	fetchFor  = 5 * time.Second  // one answer of a registry
	maxOutput = 1 << 20
	maxPage   = 8 << 20
	maxHosts  = 16
	maxCA     = 32 << 10
)

// Settings are what one client says of itself, without any credential.
type Settings struct {
	policy.Preset        // what is known without the network
	Look          []Look `json:"look,omitempty"`
	CA            string `json:"ca,omitempty"` // certificates beside the host's own, PEM
}

// A Look is a document of a registry that says where files are.
type Look struct {
	Kind string `json:"kind"` // page, tarball or dl
	URL  string `json:"url"`
	// Spare says that the registry need not have it, nor answer.
	Spare bool `json:"spare,omitempty"`
}

var clients = map[string]func(context.Context) (Settings, error){
	"pip": askPip, "npm": askNpm, "go": askGo, "cargo": askCargo, "apt": askApt,
}

// Names lists the presets that there are.
func Names() []string { return []string{"pip", "npm", "go", "cargo", "apt"} }

// Ask runs the client of that name and says how it is set up.
func Ask(ctx context.Context, name string) (Settings, error) {
	ask, ok := clients[name]
	if !ok {
		return Settings{}, unknown(name)
	}
	s, err := ask(ctx)
	if err != nil {
		return Settings{}, trouble(name, err)
	}
	if len(s.Hosts) == 0 {
		return Settings{}, trouble(name, fmt.Errorf("it is configured for no registry that is reached over HTTP"))
	}
	return s, nil
}

// Complete asks the registries of a client where they keep their files.
func Complete(ctx context.Context, name string, s Settings) (policy.Preset, error) {
	return s.complete(ctx, name, newFetcher(s.CA))
}

func (s Settings) complete(ctx context.Context, name string, f *fetcher) (policy.Preset, error) {
	for _, l := range s.Look {
		hosts, err := f.look(ctx, l)
		if err != nil && !l.Spare {
			return policy.Preset{}, trouble(name, err)
		}
		for _, h := range hosts {
			s.found(h, f.house)
		}
	}
	if n := len(s.Hosts) + len(s.Found); n > maxHosts {
		return policy.Preset{}, trouble(name, fmt.Errorf("%d hosts, more than %d", n, maxHosts))
	}
	return s.Preset, nil
}

// found adds a host that a registry pointed to. One in the house may keep its
// files in the house, too; one outside has no say about what is inside.
func (s *Settings) found(host string, house bool) {
	if ap, err := netip.ParseAddrPort(host); err == nil && !(house && policy.PresetReaches(ap.Addr())) {
		return // an address without a name is one that somebody chose
	}
	switch {
	case house:
		s.add(host)
	case host != "" && !slices.Contains(s.Hosts, host) && !slices.Contains(s.Found, host):
		s.Found = append(s.Found, host)
	}
}

// Find does both steps.
func Find(ctx context.Context, name string) (policy.Preset, error) {
	s, err := Ask(ctx, name)
	if err != nil {
		return policy.Preset{}, err
	}
	return Complete(ctx, name, s)
}

func (s *Settings) add(host string) {
	if host != "" && !slices.Contains(s.Hosts, host) {
		s.Hosts = append(s.Hosts, host)
	}
}

// use adds the host of a registry and returns its address without credentials;
// "" if it is not reached over HTTP.
func (s *Settings) use(raw string) string {
	u, host := clean(raw)
	s.add(host)
	return u
}

func (s *Settings) file(path, content string) {
	if s.Files == nil {
		s.Files = map[string]string{}
	}
	s.Files[api.GuestHome+"/"+path] = content
}

func (s *Settings) env(k, v string) {
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	s.Env[k] = v
}

// clean takes from a URL what may be a credential, and says which host and port
// it is at. Both are "" for what is not HTTP.
func clean(raw string) (clean, host string) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment, u.ForceQuery = nil, "", "", "", false
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.String(), net.JoinHostPort(strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), port)
}

func unknown(name string) error {
	return &api.Error{Code: api.CodePolicyInvalid, Message: fmt.Sprintf("preset:%.40s: is not known; there are: %s", name, strings.Join(Names(), ", ")),
		Hint: "one of these, or a presets file that has it (berm help policy)"}
}

// trouble says which client it was and what can be done where it does not help.
func trouble(name string, err error) error {
	return &api.Error{Code: api.CodeEgressUnavailable, Message: fmt.Sprintf("preset:%s: %v", name, err),
		Hint: "name its hosts with --allow, or say in a presets file what it stands for (berm help policy)"}
}
