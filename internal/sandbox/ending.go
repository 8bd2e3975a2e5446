package sandbox

import (
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// finish turns what was seen into the one ending. readErr is nil if the guest
// told an exit; stop is what the engine decided itself, or "".
func (x *execution) finish(readErr error, stop string) api.ExecResult {
	b := x.b
	if readErr != nil && stop == "" {
		x.settle()
	}
	x.sample()
	oom, tasks := b.since(x.mark, &x.caps)
	for _, n := range x.sent {
		if n > max(x.limit, x.kept) {
			x.caps.add(api.CapOutput)
		}
	}
	if stop == api.EndOutput {
		x.caps.add(api.CapOutput)
	}

	res := api.ExecResult{ExecID: x.id, TimingsMS: map[string]float64{}}
	var exit guest.Exit
	k := x.credit(oom, tasks)
	if readErr == nil {
		exit = k.exit(x.p.Exit())
	}
	if x.p != nil { // without an exit, what the guest said before it fell silent
		seen := x.p.Seen()
		x.caps.add(k.caps(seen.Caps)...)
		b.heard(seen)
	}
	switch {
	case stop != "":
		res.Ending = stop
	case readErr != nil:
		res.Ending, res.Reason = b.lost(oom, tasks, readErr)
	default:
		res.Ending, res.NotStarted = told(exit)
		if oom && exit.Signal == int(syscall.SIGKILL) {
			res.Ending = api.EndMemory // the host's cap took that process alone
		}
	}
	x.caps.add(res.Ending) // some of them are caps as well
	if x.dropped && res.Reason == "" {
		res.Reason = "output is missing: nobody took it in time"
	}
	res.ExitCode = exitCode(res.Ending, exit)
	res.CapsHit = x.caps.list()
	x.tell()
	b.mu.Lock()
	b.caps |= x.caps
	b.mu.Unlock()

	began := x.began
	if !x.ran.IsZero() && x.ran.After(began) {
		res.TimingsMS["wait"] = ms(x.ran.Sub(began)) // for the guest to come up
		began = x.ran
	}
	res.TimingsMS["exec"] = ms(time.Since(began))
	if exit.ElapsedNanos > 0 {
		res.TimingsMS["guest"] = ms(min(time.Duration(exit.ElapsedNanos), time.Since(x.began))) // as the guest says
	}
	return res
}

// settle waits for the host's word on a sandbox whose guest fell silent. A
// guest that broke its stream while the sandbox lives is no longer of use.
func (x *execution) settle() {
	select {
	case <-x.b.gone:
	case <-time.After(x.e.opt.Settle):
		x.e.opt.Log.Warn("guest stream ended before its sandbox", "sandbox_id", x.b.id, "error", x.b.guest.Err())
		x.e.stop(x.b, api.EndHostFailure)
	}
}

// told is the ending as the guest says it, of an exit that is believed: only
// what the guest can know is taken from it.
func told(x guest.Exit) (ending, notStarted string) {
	switch {
	case x.NotStarted != "" || x.Errno != 0:
		if x.NotStarted == "" {
			x.NotStarted = syscall.Errno(x.Errno).Error()
		}
		return api.EndExit, clip(x.NotStarted, 1024)
	case x.EndedBy == guest.EndedMemory:
		return api.EndMemory, ""
	case x.EndedBy == guest.EndedProcesses:
		return api.EndProcesses, ""
	case x.EndedBy == guest.EndedTimeout:
		return api.EndTimeout, ""
	case x.EndedBy == guest.EndedOutput:
		return api.EndOutput, ""
	case x.Signal != 0:
		return api.EndSignal, ""
	}
	return api.EndExit, ""
}

// lost is the ending of an exec whose sandbox went away under it.
func (b *box) lost(oom, tasks bool, readErr error) (ending, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ending = trueEnding(b.ending, b.exit, oom, tasks)
	if ending == api.EndHostFailure {
		reason = "the sandbox went away: " + clip(readErr.Error(), 512)
	}
	return ending, reason
}

// exitCode is the exit code of an ending, as the contract has it.
func exitCode(ending string, x guest.Exit) int {
	switch ending {
	case api.EndExit:
		switch {
		case x.NotStarted == "" && x.Errno == 0:
			return x.Code & 0xff
		case syscall.Errno(x.Errno) == syscall.ENOENT:
			return 127
		}
		return 126
	case api.EndSignal:
		return 128 + x.Signal&0x7f
	case api.EndTimeout:
		return 124
	case api.EndMemory, api.EndKilled:
		return 137
	case api.EndHostFailure:
		return 125
	}
	return 123
}

// unseen is the result of an exec that ended with what it ran in, or with its
// caller, while nobody was there to see it.
func unseen(id, ending string) api.ExecResult {
	var caps capSet
	caps.add(ending)
	return api.ExecResult{ExecID: id, Ending: ending, ExitCode: exitCode(ending, guest.Exit{}), CapsHit: caps.list(), Reason: abandoned, TimingsMS: map[string]float64{}}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
