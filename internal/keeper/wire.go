package keeper

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// A wire is the host's half of a sandbox's link: the end that its gateways read,
// one after the other, and what starts them. The keeper looks whether a frame is
// there and reads none.
type wire struct {
	stop chan struct{} // closed when the sandbox ends
	done chan struct{} // closed when no gateway is left and none will come

	mu    sync.Mutex
	host  *os.File // polled by the runtime: never take its Fd
	exe   *os.File // what gateways run where their engine names nothing: the program of their sandbox
	marks *os.File // what a gateway leaves to the next; read by nobody else
	begun bool
	over  bool        // the sandbox ends
	by    *link       // the engine that serves the gateway; nil: there is no gateway
	cut   bool        // that gateway must not go on
	lost  bool        // because its engine is gone
	proc  *os.Process // that gateway
}

const (
	gatewayName  = "berm-gateway"   // argv[0]
	maxGateways  = 16               // that one sandbox may wear out at that pace
	maxQuick     = 4                // of them in a row that die at once and were not asked for by a frame
	gatewayEvery = time.Second      // the least time between two
	gatewayWorn  = 30 * time.Second // and after so many
	gatewayBoot  = 10 * time.Second

	// marksSize is room for twice as many connections as a gateway lets be.
	marksSize = 16 << 10

	// brokerBuffer holds what a gateway may have asked and was not read yet.
	brokerBuffer = 128 << 10
)

func newWire() *wire { return &wire{stop: make(chan struct{}), done: make(chan struct{})} }

// lay gives w its end of the link and the program, and closes neither on error.
func (w *wire) lay(host, exe *os.File) error {
	own, err := dup(exe)
	if err != nil {
		return err
	}
	marks, err := jail.Memory("berm-marks", marksSize)
	if err != nil {
		own.Close()
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.host, w.exe, w.marks = host, own, marks
	return nil
}

// begin has gateways started for s from here on.
func (w *wire) begin(k *Keeper, s *sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.begun = true
		go w.run(k, s)
	}
}

// end kills the gateway and returns when it is gone and no other will come.
func (w *wire) end() {
	w.mu.Lock()
	first := !w.over
	w.over = true
	if first {
		close(w.stop)
	}
	w.kill()
	begun := w.begun
	if w.host != nil {
		if begun {
			w.host.SetReadDeadline(time.Unix(1, 0)) // wakes whoever waits for a frame
		} else {
			closeAll([]*os.File{w.host, w.exe, w.marks})
		}
	}
	w.mu.Unlock()
	if begun {
		<-w.done
	}
}

// left kills the gateway if l served it: what it has open must not outlive the
// policy that allowed it.
func (w *wire) left(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == l {
		w.lost = true
		w.kill()
	}
}

// kill is called with w.mu held.
func (w *wire) kill() {
	w.cut = true
	if w.proc != nil {
		w.proc.Signal(syscall.SIGKILL)
	}
}

// run starts a gateway whenever a frame waits and none is there. One that died
// has a successor at once: guests that only listen hear from it what happened.
func (w *wire) run(k *Keeper, s *sandbox) {
	var lease *jail.Lease
	defer func() {
		lease.Release()
		closeAll([]*os.File{w.host, w.exe, w.marks})
		close(w.done)
	}()
	owed, quick := false, 0
	for worn := 0; owed || waiting(w.host); {
		if owed && s.isPaused() { // nothing of it runs now
			if !w.pause(k.cfg.every) {
				return
			}
			continue
		}
		l := k.engine(w.stop)
		if l == nil {
			return
		}
		began := time.Now()
		if !k.cfg.Rootless && lease == nil {
			lease, _ = jail.LeaseUID() // none is free: the next may find one
		}
		served := time.Duration(0)
		if lease != nil || k.cfg.Rootless {
			served, _ = w.gateway(k, s, l, lease)
		}
		w.mu.Lock()
		// One that was killed before it could tell the guest leaves that to the
		// next. But not one after the other without end, for an engine that wants
		// none: then the next waits for a frame.
		if w.lost || served > k.cfg.every {
			quick = 0
		} else {
			quick++
		}
		owed = (owed || served > 0) && quick < maxQuick
		if !w.lost {
			worn++
		}
		w.by, w.proc, w.lost = nil, nil, false
		w.mu.Unlock()
		every := k.cfg.every
		if worn >= maxGateways { // slower, and not never: what hangs for good is a riddle to whoever waits
			every = k.cfg.worn
		}
		if !w.pause(time.Until(began.Add(every))) {
			return
		}
	}
	<-w.stop // gVisor would read the end of a closed link for ever
}

// pause waits, and is false when the sandbox ends.
func (w *wire) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.stop:
		return false
	}
}

// gateway runs one gateway for an engine, to its end. It returns how long it was
// there since the engine was told.
func (w *wire) gateway(k *Keeper, s *sandbox, l *link, lease *jail.Lease) (served time.Duration, err error) {
	w.mu.Lock()
	w.by, w.cut = l, w.over
	w.mu.Unlock()
	broker, theirs, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return 0, err
	}
	given := []*os.File{theirs}
	defer func() { closeAll(append(given, broker)) }()
	for _, f := range []*os.File{broker, theirs} {
		if err := jail.SetBuffer(f, brokerBuffer); err != nil {
			return 0, err
		}
	}
	sr, sw, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	given = append(given, sw)
	defer sr.Close()
	host, err := dupPolled(w.host)
	if err != nil {
		return 0, err
	}
	given = append(given, host)
	exe := w.exe
	if l.gateway != "" {
		if exe, err = runtimeFile(k.cfg.StateDir, l.gateway); err != nil {
			return 0, err
		}
		given = append(given, exe)
	}
	c := jail.Child{Exe: exe, Args: []string{gatewayName}, Files: []*os.File{host, theirs, sw, w.marks}, Cgroup: s.group, NProc: s.ask.NProc}
	if lease != nil {
		c.UID = lease.UID
	}
	proc, err := k.launcher.Start(c)
	if err != nil {
		return 0, err
	}
	closeAll(given) // only the child has its ends now
	given = nil
	w.mu.Lock()
	w.proc = proc
	if w.cut {
		w.kill()
	}
	w.mu.Unlock()
	defer func() { // also of one that is dead already
		proc.Signal(syscall.SIGKILL)
		proc.Wait()
	}()
	if err := jail.WaitByte(sr, gatewayBoot); err != nil {
		return 0, fmt.Errorf("gateway: %w", err)
	}
	if err := jail.CoverProc(proc.Pid); err != nil {
		return 0, err
	}
	// An engine that does not read must hold up nothing here.
	told, tell := make(chan error, 1), broker
	broker = nil
	go func() {
		told <- l.post(reply{Gateway: s.id}, tell)
		tell.Close()
	}()
	died := make(chan struct{})
	go func() {
		proc.Wait()
		close(died)
	}()
	began := time.Now()
	select {
	case err = <-told:
		if err != nil {
			proc.Signal(syscall.SIGKILL)
		}
	case <-died:
	}
	<-died
	return time.Since(began), err
}

// waiting blocks until a frame is there, and leaves it there. It is false when
// none will come: the guest's end is gone, or the sandbox ends.
func waiting(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		for {
			n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			if err == unix.EINTR {
				continue
			}
			there = err == nil && n > 0
			return err != unix.EAGAIN
		}
	})
	return err == nil && there
}

// dupPolled is dup for a file that the runtime polls: Fd would end that.
func dupPolled(f *os.File) (d *os.File, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var n int
		if n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			d = os.NewFile(uintptr(n), f.Name())
		}
	})
	if cerr != nil {
		err = cerr
	}
	return d, err
}

// engine is the one that is connected. It waits for one, and is nil when stop
// is closed.
func (k *Keeper) engine(stop <-chan struct{}) *link {
	for {
		k.mu.Lock()
		l := k.link
		if l == nil && k.arrival == nil {
			k.arrival = make(chan struct{})
		}
		arrival := k.arrival
		k.mu.Unlock()
		select {
		case <-stop:
			return nil
		default:
		}
		if l != nil {
			return l
		}
		select {
		case <-arrival:
		case <-stop:
			return nil
		}
	}
}
