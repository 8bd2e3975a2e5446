package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/gvisor"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/preset"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

// Descriptors that Start leaves open for the two processes.
const (
	fdOwner  = 3 // keeper: ends with the caller. worker: connections from it
	fdEngine = 4 // the socket between worker and keeper
	fdShelf  = 5 // worker: the store of templates
)

// RunKeeper is the main of the keeper process. Its arguments are: state
// directory, runtime program, "rootless" or "root", "sweep" or "look", and the
// ceiling as JSON, or nothing.
func RunKeeper(args []string) error {
	if len(args) == 5 && args[0] == "serve" {
		return keeperServe(args[1:])
	}
	if len(args) != 5 {
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
	cfg := keeper.Config{StateDir: args[0], Runtime: args[1], Rootless: args[2] == "rootless", NoSweep: args[3] == "look"}
	if args[4] != "" {
		cfg.Ceiling = new(keeper.Ceiling)
		if err := json.Unmarshal([]byte(args[4]), cfg.Ceiling); err != nil {
			return fmt.Errorf("keeper: ceiling: %w", err)
		}
	}
	return keeper.Run(cfg, owner, engine)
}

// A setup is what the worker waits for before it serves.
type setup struct {
	Agent  string                `json:"agent"`  // image of the guest agent
	Images map[string]image.Root `json:"images"` // by template

	Presets map[string]policy.Preset `json:"presets,omitempty"`
}

// What a worker may do with sockets.
const (
	workerNet  = "net"  // its sandboxes may have a link: it dials for them
	workerNone = "none" // nothing
)

// RunWorker is the main of the worker process. Its arguments are: state
// directory, the uid to become, or 0 where it is not root, and workerNet or
// workerNone.
func RunWorker(args []string) error {
	if len(args) != 3 || args[2] != workerNet && args[2] != workerNone {
		return errors.New("worker: not started by berm")
	}
	uid, err := strconv.Atoi(args[1])
	if err != nil {
		return errors.New("worker: not started by berm")
	}
	conns, err := inherited(fdOwner)
	if err != nil {
		return err
	}
	kc, err := inherited(fdEngine)
	if err != nil {
		return err
	}
	templates, err := borrowed()
	if err != nil {
		return err
	}
	host, ca := sandbox.HostFacts(), ""
	var broker *egress.Broker
	confine := jail.Confine
	if args[2] == workerNet {
		broker, confine = egress.New(egress.Options{Files: egress.ReadFiles()}), jail.ConfineToInet
		ca = preset.Authorities()
	}
	if err := confine(args[0], uid); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	own := handoff{conns}
	var set setup
	if err := own.hear(&set); err != nil {
		return nil // the caller gave up before there was anything to do
	}
	k := keeper.NewClient(kc)
	var opt gvisor.Options
	if broker != nil {
		opt.Gateway = func(id string, c *net.UnixConn) { broker.Serve(id, c) }
	}
	engine := sandbox.New([]backend.Backend{gvisor.New(k, set.Agent, opt)}, sandbox.Options{
		Host: host, Egress: broker, Presets: knownPresets(set.Presets), CA: ca,
		Images: func(name string) (image.Root, error) {
			if root, ok := set.Images[name]; ok {
				return root, nil
			}
			return findRoot(templates, name)
		},
	})
	builds := workerBuilds(templates, engine, set.Presets)
	srv := &http.Server{Handler: server.New(engine, server.Options{Shelf: templates, Builds: builds}), ReadHeaderTimeout: 10 * time.Second}
	srv.Serve(own) // ends with the caller
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	builds.Close(ctx)
	engine.Close(ctx)
	k.Close()
	return nil
}
