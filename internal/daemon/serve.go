package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/alert"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/gvisor"
	making "github.com/bermhq/berm/internal/build"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
	"github.com/bermhq/berm/internal/preset"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/store"
)

// ServeOptions say what a daemon is.
type ServeOptions struct {
	StateDir string   // "" is DefaultStateDir()
	Config   string   // file; "": none
	Listen   []string // nil: the config's, else DefaultListen; "none" is the socket only
	TLSCert  string
	TLSKey   string
	Hosts    []string // further names that clients may call it by
	Image    image.Options
	Sandbox  Program // cmd/berm-sandbox
	Agent    Program // cmd/berm-agent
	Version  api.Version
	Debug    bool
	Stdout   io.Writer // gets the ready line
	Stderr   io.Writer // logs

	// Events is what one sandbox may write into the log; zero: the store's own.
	Events store.Budget
}

// maxConnections bounds the connections of each door, maxStrangers those of one
// address that have shown no token.
const (
	maxConnections = 2048
	maxStrangers   = 64
)

// stopFor is how long open calls may take when the daemon is told to stop.
const stopFor = 10 * time.Second

// Serve is the daemon: it returns when ctx is over and everything has been
// brought to an orderly end, or when it cannot go on.
//
// It has two halves. The first has the rights of whoever started it and reads
// nothing from anybody: lay the ground, open the doors. Between them it gives
// those rights up. The second serves.
func Serve(ctx context.Context, o ServeOptions) error {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	log := newLog(o.Stderr, cfg)
	ready := newNotifier()
	cert, err := readCert(cfg.TLSCert, cfg.TLSKey)
	if err != nil {
		return err
	}
	addrs, err := addresses(cfg.Listen, cert, cfg.Hosts)
	if err != nil {
		return err
	}
	g, err := claim(o.StateDir)
	if err != nil {
		return err
	}
	defer g.close()
	// A port that is taken is said before an image is built for nothing. Whoever
	// calls meanwhile waits.
	var doors []door
	defer func() {
		for _, d := range doors {
			d.Close()
		}
	}()
	for _, a := range addrs {
		d, err := a.open(cert)
		if err != nil {
			return err
		}
		doors = append(doors, d)
	}
	if err := g.lay(ctx, o); err != nil {
		return err
	}
	u, err := g.socket()
	if err != nil {
		return err
	}
	doors = append(doors, u)
	host := sandbox.HostFacts()
	g.ca = preset.Authorities()
	if g.presets, err = newPresets(cfg.Presets, g.state); err != nil {
		return err
	}

	if g.shelf, err = newLibrarian(g.state, g.host); err != nil {
		return err
	}

	g.shelf.Begun = func() {
		log.Warn("the process that keeps templates has ended and was started again; what it was asked meanwhile has failed")
	}
	if err := jail.Drop(g.uid); err != nil {
		return err
	}

	d, err := build(ctx, g, cfg, o, host, names(doors, cfg.Hosts), log)
	if err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		d.close()
		return err
	}
	url := "" // of the first address; without one the socket is the only way in
	for _, w := range doors {
		url = cmp.Or(url, w.url)
	}
	if err := rewrite(g.urlFile, url+"\n"); err != nil {
		d.close()
		return unusable(g.state, err)
	}
	served := d.serve(doors)
	fmt.Fprintf(o.Stdout, "berm: ready %s\n", cmp.Or(url, "unix:"+filepath.Join(g.state, "berm.sock")))
	ready.tell("READY=1")

	select {
	case <-ctx.Done():
		err = nil
	case err = <-served:
	case <-g.keeper.Done():
		err = &api.Error{Code: api.CodeHostFailure, Message: "the keeper is gone, and with it every sandbox", Hint: "start the daemon again"}
	case <-g.shelf.ended:
		err = &api.Error{Code: api.CodeHostFailure, Message: "the process that keeps templates is gone, and cannot be started from here", Hint: "start the daemon again; sandboxes go on"}
	}
	ready.tell("STOPPING=1")
	d.end(err == nil)
	g.unlist()
	return err
}

func (o ServeOptions) config() (c Config, err error) {
	if o.Config != "" {
		if c, err = ReadConfig(o.Config); err != nil {
			return c, err
		}
	}
	if o.Listen != nil {
		c.Listen = o.Listen
	}
	if len(c.Listen) == 0 {
		c.Listen = []string{DefaultListen}
	}
	if o.TLSCert != "" || o.TLSKey != "" {
		c.TLSCert, c.TLSKey = o.TLSCert, o.TLSKey
	}
	c.Hosts = append(c.Hosts, o.Hosts...)
	if o.Debug {
		c.LogLevel = "debug"
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return c, &api.Error{Code: api.CodeBadRequest, Message: "a TLS certificate and its key go together", Hint: "berm serve --tls-cert FILE --tls-key FILE"}
	}
	return c, nil
}

func newLog(w io.Writer, c Config) *slog.Logger {
	level := slog.LevelInfo
	level.UnmarshalText([]byte(c.LogLevel)) // checked; "" leaves it
	opt := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// A daemon is the second half of Serve.
type daemon struct {
	g       *ground
	log     *slog.Logger
	store   *store.Store
	auth    *auth.Tokens
	engine  *sandbox.Engine
	builds  *making.Builds
	adopted chan struct{} // closed when the engine knows what ran before it
	h       http.Handler
	alerts  *alert.Alerts
	telling sync.WaitGroup
	quiet   context.CancelFunc // ends the alerts

	stopping context.Context // over when streams without an end must end
	stop     context.CancelFunc
	servers  []*http.Server
	open     sync.WaitGroup // requests, upgraded ones too
	mu       sync.Mutex
	closing  bool
}

func build(ctx context.Context, g *ground, cfg Config, o ServeOptions, host map[string]any, hosts []string, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{g: g, log: log, adopted: make(chan struct{})}
	d.store, err = store.Open(below(g.own, "."), store.Options{
		Retention: time.Duration(cfg.AuditRetention), MaxBytes: int64(cfg.AuditMaxBytes), Budget: o.Events, Log: log, Name: filepath.Join(g.state, "daemon"),
	})
	if err != nil {
		return nil, unusable(g.state, err)
	}
	defer func() {
		if err != nil {
			d.store.Close()
		}
	}()
	if d.auth, err = auth.Open(d.store.Bucket("tokens"), d.store.Append); err != nil {
		return nil, err
	}
	if err := settle(d.store, d.auth, log); err != nil {
		return nil, err
	}
	if err := d.adminToken(ctx); err != nil {
		return nil, err
	}
	if d.alerts, err = alert.New(cfg.Alerts, d.store, d.store.Bucket("alerts"), log); err != nil {
		return nil, err
	}
	meter := server.NewMeter()
	d.stopping, d.stop = context.WithCancel(context.Background())
	budget := int64(cfg.MemoryBudget)
	if budget == 0 { // to the engine, 0 is no bound
		total, err := ownMemory()
		if err != nil {
			return nil, err
		}
		budget = total / 5 * 4
	}
	broker := egress.New(egress.Options{Log: log})
	gateway := func(id string, c *net.UnixConn) {
		select { // one that an adopted sandbox has asked for meanwhile
		case <-d.adopted:
		case <-d.stopping.Done():
		}
		broker.Serve(id, c)
	}
	d.engine = sandbox.New([]backend.Backend{gvisor.New(g.keeper, g.agent, gvisor.Options{Runtime: g.runtime, Gateway: gateway})}, sandbox.Options{
		Egress: broker, Log: log, Host: host, Images: d.image, Presets: g.presets.find, CA: g.ca,
		Journal: journal{d.store, d.store.Bucket("sandboxes"), meter},
		Budget:  budget,
		Quota: sandbox.Quota{
			Sandboxes: cfg.QuotaSandboxes, MemoryBytes: int64(cfg.QuotaMemory), CreatesPerMinute: cfg.QuotaCreatesPerMinute,
		},
	})
	d.builds = daemonBuilds(g.shelf.Client, d.engine, g.presets, d.store, log)
	d.h = server.New(d.engine, server.Options{Log: log, Auth: d.auth, Store: d.store, Hosts: hosts, Version: o.Version, Shelf: g.shelf, Builds: d.builds,
		Meter: meter, Stopping: d.stopping})
	return d, nil
}

// adminToken sees to it that the first start leaves a way in: a token of its
// own in DIR/token, which the directory's owner can read.
func (d *daemon) adminToken(ctx context.Context) error {
	have, err := io.ReadAll(io.LimitReader(d.g.token, 4096))
	if err != nil {
		return unusable(d.g.state, err)
	}
	secret, made, err := d.auth.Bootstrap(ctx, strings.TrimSpace(string(have)))
	if err != nil || !made {
		return err
	}
	if err := rewrite(d.g.token, secret+"\n"); err != nil {
		return unusable(d.g.state, err)
	}
	return nil
}

// rewrite replaces what an open file holds.
func rewrite(f *os.File, s string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(s), 0); err != nil {
		return err
	}
	return f.Sync()
}

// begin takes over what an earlier daemon left running. Nothing is served
// before.
func (d *daemon) begin(ctx context.Context) error {
	if err := d.store.Append(ctx, api.Event{Type: api.EventDaemonStarted, Tenant: api.DefaultTenant, Actor: "system"}); err != nil {
		return err
	}
	if err := d.engine.Adopt(ctx); err != nil {
		return fmt.Errorf("take over the sandboxes: %w", err)
	}
	close(d.adopted)
	ctx, d.quiet = context.WithCancel(context.WithoutCancel(ctx))
	d.telling.Go(func() { d.alerts.Run(ctx) })
	return nil
}

func (d *daemon) serve(doors []door) <-chan error {
	failed := make(chan error, len(doors))
	for _, w := range doors {
		s := server.Harden(&http.Server{Handler: d, ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug)})
		d.servers = append(d.servers, s)
		go func() {
			if err := s.Serve(server.Bound(w, maxConnections, maxStrangers)); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
	}
	return failed
}

// ServeHTTP counts what is open, so that a stop can wait for it.
func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		refuseStopping(w)
		return
	}
	d.open.Add(1)
	d.mu.Unlock()
	defer d.open.Done()
	d.h.ServeHTTP(w, r)
}

// refuseStopping answers a request that came too late.
func refuseStopping(w http.ResponseWriter) {
	e := api.Error{Code: api.CodeShuttingDown, Message: "the daemon is stopping", Hint: api.Hint(api.CodeShuttingDown), RequestID: api.NewID(api.KindRequest)}
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(api.Status(e.Code))
	json.NewEncoder(w).Encode(e) // a client that is gone needs no answer
}

// end finishes open calls, ends the sandboxes if their keeper is ours, and
// seals what was written.
func (d *daemon) end(orderly bool) {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	d.stop()
	limit, cancel := context.WithTimeout(context.Background(), stopFor)
	defer cancel()
	if orderly {
		done := make(chan struct{})
		go func() { d.open.Wait(); close(done) }()
		select {
		case <-done:
		case <-limit.Done():
			d.log.Warn("some calls did not end in time and were cut")
		}
	}
	for _, s := range d.servers {
		s.Close()
	}
	if orderly { // a build is its daemon's own, also where sandboxes outlive it
		ctx, cancel := context.WithTimeout(context.Background(), stopFor)
		defer cancel()
		if err := d.builds.Close(ctx); err != nil {
			d.log.Error("not every build ended", "error", err)
		}
	}
	if orderly && d.g.started {
		ctx, cancel := context.WithTimeout(context.Background(), stopFor)
		defer cancel()
		if err := d.engine.Close(ctx); err != nil {
			d.log.Error("not every sandbox ended", "error", err)
		}
		if err := d.g.keeper.Shutdown(ctx); err != nil && !errors.Is(err, keeper.ErrCut) { // it may be gone before its answer is read
			d.log.Error("the keeper did not stop", "error", err)
		}
	}
	d.close()
}

func (d *daemon) close() {
	if d.quiet != nil {
		d.quiet()
		d.telling.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.store.Append(ctx, api.Event{Type: api.EventDaemonStopped, Tenant: api.DefaultTenant, Actor: "system"})
	if err := d.store.Close(); err != nil {
		d.log.Error("close the store", "error", err)
	}
}

// image is the root of a template.
func (d *daemon) image(name string) (image.Root, error) {
	if name == image.Host {
		return image.Root{Layers: []string{d.g.host.Name}}, nil
	}
	return findRoot(d.g.shelf, name)
}

// ownMemory is the memory of this host, in bytes.
func ownMemory() (int64, error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0, fmt.Errorf("ask for the host's memory, which bounds all sandboxes: %w", err)
	}
	return int64(si.Totalram) * int64(si.Unit), nil
}
