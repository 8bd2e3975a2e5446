package daemon

// Trusted says why what is in a state directory cannot be believed, its socket
// included, or nil.
func Trusted(dir string) error { return trusted(dir) }
