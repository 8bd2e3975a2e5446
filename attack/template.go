package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// rootName is the template that grants root inside, from the first case that
// needs it to the last.
const rootName = ownWord + "-root"

// grantRoot makes that template, as a person would, if it is not there yet.
func (r *run) grantRoot(ctx context.Context) (unfit string, err error) {
	if r.revoke != nil {
		return "", nil
	}
	if r.opt.Berm == nil || r.opt.OpenTemplate == nil {
		return "whoever attacks has no command line, and cannot make a template", nil
	}
	template := func(ctx context.Context, args ...string) error {
		ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
		defer cancel()
		cmd := r.opt.Berm(ctx, append([]string{"template"}, args...)...)
		cmd.Env = slices.DeleteFunc(cmd.Environ(), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.Contains(r.planting.vars, name) // what is planted there is no setting
		})
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %.300q", err, out)
		}
		return nil
	}
	err = template(ctx, "build", rootName, "--from", "host", "--user", "root", "--no-network", "--replace", "-q")
	r.revoke = func() { template(context.WithoutCancel(ctx), "rm", rootName) }
	return "", err
}
