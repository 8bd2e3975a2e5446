package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// A stream that is cut or falls silent at any byte ends the exec with a true
// ending in bounded time, and everything is gone afterwards.
func TestStreamFaults(t *testing.T) {
	testkit.NoLeak(t)
	for name, fault := range map[string]func(int) func(net.Conn) net.Conn{"cut": testkit.CutAfter, "silent": testkit.SilentAfter} {
		for n := 0; n < 200; n += 1 + n/8 {
			t.Run(fmt.Sprintf("%s after %d", name, n), func(t *testing.T) {
				t.Parallel()
				r := newRigBeside(t, quick)
				r.flaky.Conn = fault(n)
				id := r.create(t, api.Limits{TimeoutSeconds: 1})
				began := time.Now()
				res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"echo", "hello"}}, sandbox.Streams{})
				var ae *api.Error
				early := errors.As(err, &ae) && ae.Code == api.CodeSandboxEnded // the greeting was cut, and that was seen first
				ok := early || err == nil && res.Ending == api.EndHostFailure && res.ExitCode == 125 && res.Reason != "" ||
					res.Ending == api.EndTimeout && name == "silent" || err == nil && res.Ending == api.EndExit && res.ExitCode == 0
				if !ok {
					t.Errorf("exec = %+v, %v", res, err)
				}
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("took %v", d)
				}
				if _, err := r.Delete(t.Context(), id); err != nil {
					t.Errorf("Delete: %v", err)
				}
			})
		}
	}
}

func TestBackendFaults(t *testing.T) {
	r := newRig(t, quick)
	for name, set := range map[string]func(error){
		"start": func(err error) { r.flaky.StartErr = err },
		"agent": func(err error) { r.flaky.AgentErr = err },
		"check": func(err error) { r.flaky.CheckErr = err },
	} {
		r.Engine = sandbox.New([]backend.Backend{r.flaky}, quick)
		set(testkit.ErrFault)
		if _, err := r.Create(t.Context(), api.CreateRequest{}); err == nil || !strings.Contains(err.Error(), testkit.ErrFault.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		set(nil)
		if n := r.mem.Live(); n != 0 {
			t.Errorf("%s: %d instances are left", name, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Create(ctx, api.CreateRequest{}); err == nil {
		t.Error("Create for a caller that left")
	}
}

func TestFilesOfASilentGuest(t *testing.T) {
	r := newRig(t, quick)
	r.flaky.Conn = testkit.SilentAfter(0)
	id := r.create(t, api.Limits{})
	for name, do := range map[string]func() error{
		"glob": func() error { _, err := r.Glob(t.Context(), id, "*"); return err },
		"tar":  func() error { return r.TarIn(t.Context(), id, ".", strings.NewReader("x")) },
		"read": func() error { _, err := r.ReadFile(t.Context(), id, "x", 1); return err },
	} {
		began := time.Now()
		if err := do(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
}
