package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// binary is the berm that `make test` built, and the state directory in which
// its template is ready.
func binary(t *testing.T) (path, state string) {
	t.Helper()
	path, state = os.Getenv("BERM_BIN"), os.Getenv("BERM_STATE")
	if path == "" || state == "" {
		t.Skip("needs a built berm: run through make test (BERM_BIN, BERM_STATE)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the caps of ordinary users need delegated cgroups")
	}
	return path, state
}

// TestScripts runs the scripts of testdata/script through the real binary.
func TestScripts(t *testing.T) {
	path, state := binary(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BERM_STATE", state)
			env.Setenv("PATH", filepath.Dir(path)+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOST_SECRET", "this-must-stay-outside")
			return nil
		},
	})
}
