package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that the user ended.
var errInterrupted = errors.New("interrupted")

const (
	// goneAfter the first signal the process ends, whatever it waits for: what
	// runs the sandbox cleans up when this process is gone.
	goneAfter = 15 * time.Second
	// What is still to be said when nothing is left to clean up may not take
	// longer without a byte being taken: after a signal, and else.
	lastWords, lastWordsUnasked = time.Second, 5 * time.Second
)

// quietQuit ends berm at SIGQUIT without the trace that Go would print, unless
// a verb sees to it itself.
func (env *Env) quietQuit() (stop func()) {
	env.handled = new(atomic.Bool)
	quit, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(quit, syscall.SIGQUIT)
	go func() {
		for {
			select {
			case <-quit:
				if !env.handled.Load() {
					os.Exit(128 + int(syscall.SIGQUIT))
				}
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(quit); close(done) }
}

// interrupts are the signals that ask a verb to end.
type interrupts struct {
	env     *Env
	restore func()      // the terminal
	came    atomic.Bool // one of them
	over    atomic.Bool // nothing is left to clean up
	stop    func()      // ends the watch for them

	last  *time.Timer // ends the process
	quiet time.Duration
}

// interruptible cancels at the first signal that asks to end; at the second it
// leaves at once, and after patience, if that is not 0.
func (env *Env) interruptible(ctx context.Context, restore func(), patience time.Duration) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancelCause(ctx)
	in := &interrupts{env: env, restore: restore}
	sig, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(sig, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	broken := make(chan os.Signal, 1) // a closed stdout is an error to handle, not a way to die
	signal.Notify(broken, syscall.SIGPIPE)
	if env.handled != nil {
		env.handled.Store(true)
	}
	go func() {
		var late <-chan time.Time
		for {
			select {
			case <-sig:
			case <-late:
			case <-done:
				return
			}
			if in.came.Swap(true) || in.over.Load() {
				in.exit(exitKilled)
			}
			if patience > 0 {
				late = time.After(patience)
			}
			cancel(errInterrupted)
		}
	}()
	in.stop = func() {
		signal.Stop(sig)
		signal.Stop(broken)
		close(done)
		cancel(nil)
		if in.last != nil {
			in.last.Stop()
		}
		if env.handled != nil {
			env.handled.Store(in.came.Load()) // one that came may still be on its way to quietQuit
		}
	}
	return ctx, in
}

func (in *interrupts) exit(code int) {
	in.restore()
	os.Exit(code)
}

// leave says that nothing is left to clean up, and that only code is still to be
// told: a signal ends the process at once from now on. If one came already, or
// the program did not end by itself, nobody may be there to read what berm still
// has to say, and that must not keep it.
func (in *interrupts) leave(code int, byItself bool) {
	in.over.Store(true)
	in.quiet = lastWordsUnasked
	if in.came.Load() {
		in.quiet = lastWords
	} else if byItself {
		return
	}
	in.last = time.AfterFunc(in.quiet, func() { in.exit(code) })
	in.env.took = func() { in.last.Reset(in.quiet) }
}
