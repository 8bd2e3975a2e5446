package cli

import (
	"io"
	"os"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/keep"
)

// An output is where one stream of the program goes.
type output struct {
	w    io.Writer
	keep *keep.Keeper
	show *shower
}

func (r *runner) openOutput() {
	pick := func(f *os.File) output {
		switch {
		case r.opt.json:
			k := keep.New(r.sandboxOutputLimit())
			return output{w: k, keep: k}
		case !r.opt.tty && isTerminal(f):
			s := newShower(f)
			return output{w: s, show: s}
		}
		return output{w: f}
	}
	r.stdout, r.stderr = pick(r.env.Stdout), pick(r.env.Stderr)
}

func (r *runner) closeOutput() {
	if r.unread != nil { // somebody is still in the middle of a write
		return
	}
	for _, o := range []output{r.stdout, r.stderr} {
		if o.show != nil {
			o.show.Close()
		}
	}
}

// sandboxOutputLimit is what the server granted, within reason: this process
// holds that much twice.
func (r *runner) sandboxOutputLimit() int64 {
	n := r.sandbox.Limits.OutputBytes
	if n <= 0 || n > 1<<30 {
		n = api.DefaultOutputBytes
	}
	return n
}
