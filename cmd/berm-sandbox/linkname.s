// An assembly file lets the package declare what go:linkname binds.
