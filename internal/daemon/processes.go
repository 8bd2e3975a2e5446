package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/gvisor"
	"github.com/bermhq/berm/internal/keeper"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

// Descriptors that Start leaves open for the two processes.
const (
	fdOwner  = 3 // keeper: ends with the caller. worker: connections from it
	fdEngine = 4 // the socket between worker and keeper
)

// RunKeeper is the main of the keeper process. Its arguments are: state
// directory, runtime program, "rootless" or "root", "sweep" or "look".
func RunKeeper(args []string) error {
	if len(args) != 4 {
		return errors.New("keeper: not started by berm")
	}
	keeper.Harden()
	owner, err := inherited(fdOwner)
	if err != nil {
		return err
	}
	engine, err := inherited(fdEngine)
	if err != nil {
		return err
	}
	return keeper.Run(keeper.Config{StateDir: args[0], Runtime: args[1], Rootless: args[2] == "rootless", NoSweep: args[3] == "look"}, owner, engine)
}

// A setup is what the worker waits for before it serves.
type setup struct {
	Agent  string            `json:"agent"`  // image of the guest agent
	Images map[string]string `json:"images"` // template -> image
}

// RunWorker is the main of the worker process.
func RunWorker([]string) error {
	// All threads: the worker never gains a right by running something.
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("worker: no-new-privileges: %w", e)
	}
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	conns, err := inherited(fdOwner)
	if err != nil {
		return err
	}
	kc, err := inherited(fdEngine)
	if err != nil {
		return err
	}
	own := handoff{conns}
	var set setup
	if err := own.hear(&set); err != nil {
		return nil // the caller gave up before there was anything to do
	}
	k := keeper.NewClient(kc)
	engine := sandbox.New([]backend.Backend{gvisor.New(k, set.Agent)}, sandbox.Options{
		Images: func(template string) (string, error) {
			if image, ok := set.Images[template]; ok {
				return image, nil
			}
			return "", &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("no template %.80q", template), Hint: "berm help run"}
		},
	})
	srv := &http.Server{Handler: server.New(engine, server.Options{}), ReadHeaderTimeout: 10 * time.Second}
	srv.Serve(own) // ends with the caller
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	engine.Close(ctx)
	k.Close()
	return nil
}
