package registry

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/bermhq/berm/api"
)

// maxRef bounds the text of a reference, in bytes.
const maxRef = 1024

// The grammar of names that docker has; the library is more generous, and a
// name becomes part of an address.
var (
	repository   = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	registryHost = regexp.MustCompile(`^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?$`)
)

// Canonical is a reference in full: python:3.12-slim is
// docker.io/library/python:3.12-slim, a name without a tag gets latest, and a
// digest takes the place of a tag. What is no reference is an error.
func Canonical(ref string) (string, error) {
	r, err := parseRef(ref, nil)
	if err != nil {
		return "", err
	}
	return canonical(r), nil
}

func canonical(r name.Reference) string {
	return strings.Replace(r.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
}

// parseRef reads a reference. Registries in plain, and those of this machine,
// may be spoken to over plain HTTP.
func parseRef(ref string, plain []string) (name.Reference, error) {
	bad := func(why string) error {
		return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("image %.200q: %s", ref, why),
			Hint: "name it as docker does: python:3.12-slim, or registry.test:5000/team/app@sha256:..."}
	}
	switch {
	case len(ref) > maxRef:
		return nil, bad("a reference that long is none")
	case strings.Contains(ref, "://"):
		return nil, bad("a reference has no scheme; --plain-http HOST is for registries without TLS")
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, bad("it is no reference to an image")
	}
	if !repository.MatchString(r.Context().RepositoryStr()) || !registryHost.MatchString(r.Context().RegistryStr()) {
		return nil, bad("it is no reference to an image")
	}
	if d, ok := r.(name.Digest); ok && !strings.HasPrefix(d.DigestStr(), "sha256:") {
		return nil, bad("only digests of sha256 are known")
	}
	if host := r.Context().RegistryStr(); isLoopback(host) || slices.Contains(plain, host) {
		r, err = name.ParseReference(ref, name.Insecure)
		if err != nil {
			return nil, bad("it is no reference to an image")
		}
	}
	return r, nil
}

// isLoopback says whether a host, with or without a port, is this machine by
// its very name.
func isLoopback(host string) bool {
	bare := bareHost(host)
	if bare == "localhost" {
		return true
	}
	ip := net.ParseIP(bare)
	return ip != nil && ip.IsLoopback()
}

// isPrivate says whether a host is written as an address that is not public.
func isPrivate(host string) bool {
	ip := net.ParseIP(bareHost(host))
	return ip != nil && (ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsUnspecified())
}

func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.Trim(host, "[]")
}
