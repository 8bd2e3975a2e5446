package main

import (
	_ "unsafe" // go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go run ./gen

// Building and optimising the seccomp program takes gVisor several
// milliseconds of every start. gVisor can take a precompiled one from a table,
// but its `go` branch ships the table empty; this fills it with the program
// that gen made out of gVisor's own rules. A test makes it again and compares.

//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

func usePrecompiled() {
	filter.ListPrecompiled() // spends the once that would reset the table
	for _, p := range precompiled() {
		precompiledPrograms[p.Name] = p
	}
}
