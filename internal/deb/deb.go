// Package deb turns the names of Debian or Ubuntu packages into a root file
// system: it reads a distribution's index, checks its signature, resolves what
// the packages need, fetches and checks them, and unpacks them as dpkg would.
// It runs none of their scripts: that is for a sandbox.
package deb

// Package is one package as an index has it.
type Package struct {
	Name, Version, Arch string
	Filename            string // below the mirror
	Size                int64  // of the .deb
	SHA256              string
	Essential           bool
}
