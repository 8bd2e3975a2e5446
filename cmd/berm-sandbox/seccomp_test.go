package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// The precompiled filter is found under the key of the configuration that Berm
// starts gVisor with: systrap, and everything optional off.
func TestPrecompiledKey(t *testing.T) {
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	usePrecompiled()
	for _, info := range systrap.PrecompiledSeccompInfo() {
		key := config.Options{Platform: info}.ConfigKey()
		p, ok := precompiledPrograms[key]
		if !ok {
			t.Errorf("no precompiled program for %q: gVisor would build it at every start", key)
		}
		if len(p.Bytecode32) < 100 {
			t.Errorf("%q: a filter of %d words", key, len(p.Bytecode32))
		}
	}
}

// The committed filter is what gVisor's rules of today compile to.
func TestPrecompiledIsCurrent(t *testing.T) {
	committed, err := os.ReadFile("seccomp_precompiled.go")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "-trimpath", "./gen", "-")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	made, err := cmd.Output()
	if err != nil {
		t.Fatalf("gen: %v", err)
	}
	if !bytes.Equal(made, committed) {
		t.Error("seccomp_precompiled.go is not what gen makes: run go generate ./cmd/berm-sandbox")
	}
}
