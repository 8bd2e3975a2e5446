// Package deb turns the names of Debian or Ubuntu packages into a root file
// system: it reads a distribution's index, checks its signature, resolves what
// the packages need, fetches and checks them, and unpacks them as dpkg would.
// It runs none of their scripts: that is for a sandbox.
//
// Trust goes one way. A keyring of the host, or one that the caller names,
// signs a Release file; that names indexes by their SHA256; those name .debs by
// theirs. Nothing that this chain does not reach is parsed, and no option skips
// a link of it. Open, Resolve and Fetch belong to a process with a network;
// WriteTar, which reads what packages hold, needs nothing but its arguments and
// runs in a process without rights.
package deb

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/bermhq/berm/api"
)

// Package is one package as an index has it.
type Package struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Arch         string `json:"arch"`
	Mirror       string `json:"mirror"`   // what Filename is below
	Filename     string `json:"filename"` // of the .deb, below the mirror
	Size         int64  `json:"size"`     // of the .deb, in bytes
	SHA256       string `json:"sha256"`   // of the .deb, lower case hex
	Essential    bool   `json:"essential,omitempty"`
	AutoSelected bool   `json:"auto,omitempty"` // nobody asked for it by name
	MultiSame    bool   `json:"multi_same,omitempty"`
	Installed    int64  `json:"installed,omitempty"` // bytes on disk, by the index
}

// A Set is everything that a root is made of. It is plain data, so that one
// process can resolve it and another unpack it.
type Set struct {
	Suite    string    `json:"suite"`
	Arch     string    `json:"arch"` // as dpkg names it: amd64, arm64
	Packages []Package `json:"packages"`
	// Sources and Keys are for apt inside: lines of a sources.list, and the keys
	// they are signed by, by file name.
	Sources string            `json:"sources"`
	Keys    map[string][]byte `json:"keys"`
	Slim    bool              `json:"slim,omitempty"`
}

// layout is part of every key: it changes when WriteTar makes other roots.
const layout = "deb root 1"

// Key names what WriteTar makes of the set: two sets with the same key become
// the same root.
func (s Set) Key() string {
	h := sha256.New()
	fmt.Fprintln(h, layout)
	if err := json.NewEncoder(h).Encode(s); err != nil {
		panic(err) // strings and numbers only
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Size is what the set's .debs are together, in bytes, and Installed what they
// say they become on disk.
func (s Set) Size() (debs, installed int64) {
	for _, p := range s.Packages {
		debs += p.Size
		installed += p.Installed
	}
	return debs, installed
}

// Bounds on what an archive may make us hold. Real ones need a quarter of them
// at most.
const (
	maxRelease  = 8 << 20   // an InRelease file; it is read before it is trusted
	maxIndex    = 64 << 20  // a compressed Packages file
	maxIndexRaw = 512 << 20 // the same, expanded
	maxPackages = 400_000   // in all indexes
	maxDeb      = 4 << 30   // one .deb
	maxControl  = 32 << 20  // a control.tar, expanded
	maxSet      = 20_000    // packages of a set
)

// invalid is the error of what packages or an archive say.
func invalid(hint, format string, args ...any) error {
	return &api.Error{Code: api.CodeTemplateInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// refused is the error of something that is not what was signed.
func refused(format string, args ...any) error {
	return invalid("the mirror or something before it changes what it serves: use another one; there is no way to go on without", format, args...)
}
