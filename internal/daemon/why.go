package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
)

// upTime is how long a keeper may take to come up: it takes milliseconds.
const upTime = 20 * time.Second

// up waits until the keeper can launch.
func (l *Local) up() error {
	if err := keeper.Up(l.owner, upTime); err != nil {
		return notUp(err)
	}
	return nil
}

// noNamespace is why a process of ours could not be started.
func noNamespace(err error) error { return notUp(fmt.Errorf("start a process: %w", err)) }

// notUp says why sandboxes cannot start on this host, and the one command that
// mends it.
func notUp(err error) error {
	why, fix := jail.Blamed(err)
	switch {
	case why != "":
		err = fmt.Errorf("%s (%w)", why, err)
	case os.Geteuid() != 0:
		fix = "sudo berm ..."
	default:
		fix = "BERM_DEBUG=1 berm doctor"
	}
	return &api.Error{Code: api.CodeRungUnavailable, Message: "gvisor: " + err.Error(), Hint: fix}
}
