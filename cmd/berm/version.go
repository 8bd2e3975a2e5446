package main

import (
	"runtime"
	"runtime/debug"

	"github.com/bermhq/berm/api"
)

// version is what the toolchain stamped into the binary.
func version() api.Version {
	v := api.Version{Version: "devel"}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		v.Version = bi.Main.Version
	}
	v.Go, v.OS, v.Arch = bi.GoVersion, runtime.GOOS, runtime.GOARCH
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
