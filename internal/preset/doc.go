// Package preset asks this host's own package managers what registries they
// use, so that the same ones can be allowed and configured inside. It holds no
// registry's name.
package preset
