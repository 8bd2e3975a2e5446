package attack

import "context"

// A Driver attacks from beside a sandbox and not by a program in it: with a
// token, or with a hostile part in the place of one of Berm's. It judges
// nothing: it notes in the observation what was seen from outside, and an error
// is the reason why nothing could be seen.
type Driver func(ctx context.Context, d *Drive) error

// A Drive is one such attack.
type Drive struct {
	Case Case
	Seen *Observation
	run  *run
}

// drivers are all there are, by the name that cases give.
var drivers = map[string]Driver{
	"here":  driveHere,
	"execs": driveExecs,
}

// A companion does from outside what a case is about while its program runs in a
// sandbox, or after it did: it sets what an attempt does then.
type companion func(a *attempt)

// companions are all there are, by the name that cases give.
var companions = map[string]companion{
	"owned": joinOwned,
}

func init() {
	for name, t := range archives {
		companions["tar-"+name] = t.join
	}
}

// driven lets a driver attack and looks at the host before and after.
func (r *run) driven(ctx context.Context, c Case, drive Driver) Observation {
	var o Observation
	r.lure.take()
	look := func() view { return look(r.stateDir) }
	if c.Family == "api" {
		t, err := r.found(ctx)
		if err != nil {
			return Observation{Failure: err.Error()}
		}
		look = func() view { return t.without(r.stateDir) }
	}
	before := look()
	if err := drive(ctx, &Drive{Case: c, Seen: &o, run: r}); err != nil && o.Failure == "" {
		o.Failure = err.Error()
	}
	o.settledBy(look, before, "")
	o.Touched = r.planting.touched()
	o.Calls = r.lure.take()
	return o
}
