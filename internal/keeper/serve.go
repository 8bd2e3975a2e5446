package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Mode says what ends a keeper.
type Mode string

// Modes.
const (
	// ModeOwner is that of Run: it ends with the one engine that it was made for.
	ModeOwner Mode = "owner"
	// ModeLinger ends when no daemon is connected and nothing runs for a while,
	// or when a daemon asks for it.
	ModeLinger Mode = "linger"
	// ModeUnit never ends by itself: whoever started it ends it.
	ModeUnit Mode = "unit"
)

// lasts says whether sandboxes outlive their engine.
func (m Mode) lasts() bool { return m == ModeLinger || m == ModeUnit }

// Version is the newest protocol that this keeper and this client speak; each
// also speaks the one before.
const (
	Version = 1
	oldest  = max(1, Version-1)
)

// Hello is what a keeper says of itself.
type Hello struct {
	Version int  `json:"version"` // that both speak
	Mode    Mode `json:"mode"`
	PID     int  `json:"pid"`
}

// Bounds of what a daemon may do. It is trusted with sandboxes and no more: one
// that breaks them is cut, and they go on.
const (
	maxRunning   = 4096 // sandboxes, where no ceiling says less
	maxPast      = 4096 // endings that are kept until they are noted
	maxStrangers = 16   // connections that have not said hello
	greetTime    = 5 * time.Second
	readTime     = 10 * time.Second // for an answer to be taken
	maxPerSecond = 20_000
)

// Serve is the main of a keeper that outlives its daemon. Daemons connect to l
// (SOCK_SEQPACKET); the newest one is served and the one before it is cut.
// Sandboxes and their deadlines go on meanwhile, and a daemon finds them by
// List and Attach. It returns when its mode says so or when l is closed, which
// is how a signal ends it: then every sandbox ends first.
func Serve(cfg Config, l *net.UnixListener, mode Mode) error {
	if !mode.lasts() {
		return fmt.Errorf("keeper: %q is no way to serve", mode)
	}
	if cfg.Linger <= 0 {
		cfg.Linger = 10 * time.Second
	}
	k, err := newKeeper(cfg, mode)
	if err != nil {
		return err
	}
	defer k.launcher.Close()
	k.loadPast()
	swept := k.sweep()
	accepted := make(chan error, 1)
	go func() { accepted <- k.accept(l) }()
	if mode == ModeLinger {
		err = k.linger(accepted)
	} else {
		err = <-accepted
	}
	l.Close()
	k.shutdown()
	k.replace(nil)
	k.savePast()
	<-swept
	os.Remove(k.runs())
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept serves daemons until l is closed.
func (k *Keeper) accept(l *net.UnixListener) error {
	strangers := make(chan struct{}, maxStrangers)
	for {
		strangers <- struct{}{}
		c, err := l.AcceptUnix()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
			<-strangers
			time.Sleep(20 * time.Millisecond) // it passes, or there is nothing to be done about it
			continue
		}
		if err != nil {
			return err
		}
		go func() {
			ln, err := k.welcome(c)
			<-strangers
			if err != nil {
				c.Close()
				return
			}
			k.serve(ln)
			c.Close()
			k.left(ln)
		}()
	}
}

// welcome makes a daemon of a connection: it must come from somebody who may,
// and say hello in a protocol that we speak.
func (k *Keeper) welcome(c *net.UnixConn) (*link, error) {
	if err := k.mayConnect(c); err != nil {
		return nil, err
	}
	c.SetReadDeadline(time.Now().Add(greetTime))
	var q request
	files, err := receive(c, make([]byte, maxMessage), &q)
	closeAll(files)
	if err != nil {
		return nil, err
	}
	ln := &link{conn: c, patience: readTime, perSec: k.cfg.perSec}
	if q.Op != "hello" {
		err = &Refusal{Code: "host.failure", Message: "keeper: the first request must be hello", Hint: "berm doctor"}
		ln.post(reply{Seq: q.Seq, Err: refusal(err)})
		return nil, err
	}
	h, err := k.greet(q)
	if err == nil && q.Gateway != "" && !imageShape.MatchString(q.Gateway) {
		err = fmt.Errorf("hello: %.80q is not the name of a runtime", q.Gateway)
	}
	ln.gateway = q.Gateway
	if err != nil {
		ln.post(reply{Seq: q.Seq, Err: refusal(err)})
		return nil, err
	}
	c.SetReadDeadline(time.Time{})
	// From here on it hears of every ending, so it is told before it may ask.
	if err := ln.post(reply{Seq: q.Seq, Hello: h}); err != nil {
		return nil, err
	}
	k.replace(ln)
	return ln, nil
}

// mayConnect refuses whoever is not root, us, or the daemon's own user.
func (k *Keeper) mayConnect(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if cerr != nil {
		return cerr
	}
	uid := int(cred.Uid)
	if uid == 0 || uid == os.Geteuid() || k.cfg.DaemonUID > 0 && uid == k.cfg.DaemonUID {
		return nil
	}
	return fmt.Errorf("keeper: uid %d may not connect", uid)
}

// greet finds the newest protocol that both speak.
func (k *Keeper) greet(q request) (*Hello, error) {
	v := min(q.Version, Version)
	if v < oldest || v < q.Oldest {
		return nil, &Refusal{Code: "host.failure",
			Message: fmt.Sprintf("the keeper that runs (process %d) speaks protocol %d to %d, and this berm %d to %d",
				os.Getpid(), oldest, Version, q.Oldest, q.Version),
			Hint: fmt.Sprintf("start the berm that it came with; or end it and all its sandboxes: kill %d", os.Getpid())}
	}
	return &Hello{Version: v, Mode: k.mode, PID: os.Getpid()}, nil
}

// replace makes l the engine and cuts the one before it.
func (k *Keeper) replace(l *link) {
	k.mu.Lock()
	old := k.link
	k.link = l
	if l != nil && k.arrival != nil {
		close(k.arrival)
		k.arrival = nil
	}
	k.stirred()
	k.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
}

// left notes that a daemon is gone, unless another has taken its place. The
// gateways that it served and what was bound to it end now: all that it launched is known, for its requests
// are read no more.
func (k *Keeper) left(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.link == l {
		k.link = nil
	}
	for _, s := range k.running {
		if s.ask.Bound && s.by == l {
			s.end(CauseOwner)
		}
		if s.wire != nil {
			s.wire.left(l)
		}
	}
	k.stirred()
}

// stirred wakes linger. It never waits.
func (k *Keeper) stirred() {
	select {
	case k.stir <- struct{}{}:
	default:
	}
}

// linger returns when nobody is connected and nothing runs for a while, when a
// daemon ended all, or when accepting fails.
func (k *Keeper) linger(accepted chan error) error {
	timer := time.NewTimer(k.cfg.Linger)
	defer timer.Stop()
	waiting := true
	for {
		late := false
		select {
		case err := <-accepted:
			return err
		case <-timer.C:
			late = true
		case <-k.stir:
		}
		k.mu.Lock()
		idle, over := k.link == nil && len(k.running) == 0, k.over
		k.mu.Unlock()
		switch {
		case over, late && idle:
			return nil
		case idle && !waiting:
			timer.Reset(k.cfg.Linger)
		case !idle:
			timer.Stop()
		}
		waiting = idle
	}
}

// end is the engine's orderly end: all sandboxes go. A unit takes new ones then.
func (k *Keeper) end() {
	k.shutdown()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mode == ModeUnit {
		k.closing = false
	}
}

// most is how many sandboxes there can be at one time.
func (k *Keeper) most() int {
	if c := k.cfg.Ceiling; c != nil && c.Sandboxes > 0 {
		return c.Sandboxes
	}
	return maxRunning
}
