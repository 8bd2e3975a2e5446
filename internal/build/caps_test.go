package build

import (
	"context"
	"errors"
	"testing"

	"github.com/bermhq/berm/api"
)

// A poorHost can hold no caps.
type poorHost struct{ *world }

func (poorHost) Doctor(context.Context) (api.Doctor, error) {
	return api.Doctor{Walls: []api.Wall{
		{Name: "memory", Reason: "no cgroups (--memory=unlimited accepts it)", Fix: "sudo berm ..."},
		{Name: "processes", Reason: "no cgroups (--pids=unlimited accepts it)", Fix: "sudo berm ..."},
		{Name: "cpu", Holds: true}, {Name: "disk"},
	}}, nil
}

func TestBearable(t *testing.T) {
	for _, tt := range []struct {
		limits api.Limits
		hint   string
	}{
		{api.Limits{}, "sudo berm ...; to accept that nothing enforces it: --memory=unlimited --pids=unlimited"},
		{api.Limits{MemoryBytes: -1}, "sudo berm ...; to accept that nothing enforces it: --pids=unlimited"},
		{api.Limits{MemoryBytes: -1, Pids: -1}, ""},
	} {
		w := &work{b: &Builds{opt: Options{Engine: poorHost{}}}, limits: laid(tt.limits)}
		err := w.bearable(t.Context())
		var ae *api.Error
		switch {
		case tt.hint == "" && err == nil:
		case !errors.As(err, &ae) || ae.Hint != tt.hint || ae.Code != api.CodeCapUnenforceable:
			t.Errorf("%+v: %v", tt.limits, err)
		}
	}
}
