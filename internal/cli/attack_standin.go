package cli

import (
	"context"

	"github.com/bermhq/berm/attack"
)

// standIn opens a session in whose sandboxes a hostile program is in the place of
// one part.
func (env *Env) standIn(rung string) func(ctx context.Context, part string, link bool) (*attack.Session, error) {
	return func(ctx context.Context, part string, link bool) (*attack.Session, error) {
		s, err := env.Open(ctx, OpenOptions{StateDir: env.StateDir, Isolation: rung, Link: link, StandIn: part})
		if err != nil {
			return nil, err
		}
		return &attack.Session{Client: s.Client, Template: s.Template, StateDir: s.StateDir, Close: s.Close}, nil
	}
}
