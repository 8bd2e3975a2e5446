package build

import (
	"context"
	"strings"

	"github.com/bermhq/berm/api"
)

// bearable refuses limits of steps that this host cannot hold, before anything
// is fetched for a build that could not run a step. It says what a sandbox of
// such limits would say.
func (w *work) bearable(ctx context.Context) error {
	e, ok := w.b.opt.Engine.(interface {
		Doctor(ctx context.Context) (api.Doctor, error)
	})
	if !ok {
		return nil
	}
	d, err := e.Doctor(ctx)
	if err != nil {
		return nil // the first step will say it
	}
	var first *api.Wall
	var flags []string
	for i := range d.Walls {
		wall := &d.Walls[i]
		flag := map[string]string{"memory": "memory", "processes": "pids", "cpu": "cpus"}[wall.Name]
		asked := map[string]bool{"memory": w.limits.MemoryBytes > 0, "pids": w.limits.Pids > 0, "cpus": w.limits.CPUs > 0}[flag]
		if wall.Holds || !asked {
			continue
		}
		if flags = append(flags, "--"+flag+"=unlimited"); first == nil {
			first = wall
		}
	}
	if first == nil {
		return nil
	}
	why := first.Reason
	if i := strings.LastIndex(why, " (--"); i >= 0 {
		why = why[:i]
	}
	return &api.Error{
		Code:    api.CodeCapUnenforceable,
		Message: first.Name + ": this host cannot enforce the cap: " + why,
		Hint:    first.Fix + "; to accept that nothing enforces it: " + strings.Join(flags, " "),
	}
}
