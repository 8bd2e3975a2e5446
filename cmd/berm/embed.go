package main

import (
	"embed"
	"io/fs"

	"github.com/bermhq/berm/internal/daemon"
)

// The programs that berm carries, packed by `make build`. A berm that was built
// without them says so when it needs one.
//
//go:embed all:blobs
var blobs embed.FS

func program(name string) daemon.Program {
	files, _ := fs.Sub(blobs, "blobs") // fails for a malformed name only
	return daemon.Program{Name: name, Files: files}
}
