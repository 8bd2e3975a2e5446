package build

import "io"

// Input is what comes with a request as bytes; both may be nil.
type Input struct {
	Context io.Reader // a tar of what a Dockerfile copies from
	Rootfs  io.Reader // an archive that is imported, where the request names no source
}
