package main

import (
	"embed"

	"github.com/bermhq/berm/internal/daemon"
)

// The programs that berm carries, packed by `make build`. A berm that was built
// without them says so when it needs one.
//
//go:embed all:blobs
var blobs embed.FS

func program(name string) daemon.Program {
	gz, _ := blobs.ReadFile("blobs/" + name + ".gz")
	sum, _ := blobs.ReadFile("blobs/" + name + ".sha256")
	return daemon.Program{Name: name, Gzip: gz, SHA256: string(sum)}
}
