package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// refuse ends a run in which nothing was executed.
func (r *runner) refuse(err error) int {
	r.env.explain(err)
	if r.opt.json {
		e := &api.Error{Code: api.CodeBadRequest, Message: err.Error()}
		var f *fault
		var ae *api.Error
		switch {
		case errors.As(err, &ae):
			e = ae
		case errors.As(err, &f):
			e.Hint = f.try
		default:
			e.Code = api.CodeHostFailure
		}
		r.env.print(e)
	}
	return exitRefused
}

// unknownIsolation says what this host offers.
func (env *Env) unknownIsolation(ctx context.Context, name string) error {
	offers := []string{api.IsolationAuto}
	if env.Rungs == nil {
		offers = append(offers, api.IsolationGVisor)
	} else {
		for _, r := range env.Rungs(ctx) {
			if r.Available {
				offers = append(offers, r.Name)
			}
		}
	}
	return &api.Error{
		Code:    api.CodeUnknownIsolation,
		Message: fmt.Sprintf("--isolation %s: is not known; this host offers: %s", name, strings.Join(offers, ", ")),
		Hint:    "berm run --isolation " + offers[len(offers)-1],
	}
}

// endings is every ending that a run may have; what a server says else is not
// believed.
var endings = []string{api.EndExit, api.EndSignal, api.EndTimeout, api.EndTTL, api.EndIdle, api.EndMemory,
	api.EndProcesses, api.EndOutput, api.EndPolicy, api.EndKilled, api.EndHostFailure}

// finish reports a run in which something was executed.
func (r *runner) finish() int {
	rep, res := &r.report, &r.result
	if !slices.Contains(endings, res.Ending) {
		res.Ending, res.ExitCode, res.Reason = api.EndHostFailure, exitRefused, "the answer was not understood"
	}
	rep.SandboxID, rep.Isolation, rep.Boundary = r.sandbox.SandboxID, r.sandbox.Isolation, r.sandbox.Boundary
	rep.Limits = r.sandbox.Limits
	if len(r.sandbox.HostFactsWeakening) > 0 {
		rep.HostFactsWeakening = r.sandbox.HostFactsWeakening
	}
	rep.Ending, rep.ExitCode, rep.Reason = res.Ending, res.ExitCode&0xff, oneLine(res.Reason)
	var unstarted *fault
	if res.NotStarted != "" {
		unstarted = r.notStarted()
		rep.Reason = oneLine(unstarted.Error())
	}
	rep.CapsHit = union(union([]string{}, res.CapsHit), rep.CapsHit)
	rep.TimingsMS["total"] = milliseconds(time.Since(r.started))

	if r.opt.json {
		var dropOut, dropErr int64
		rep.Stdout, rep.StdoutBase64, dropOut = r.stdout.keep.Result()
		rep.Stderr, rep.StderrBase64, dropErr = r.stderr.keep.Result()
		rep.Truncated = api.Truncated{Stdout: dropOut > 0, Stderr: dropErr > 0, DroppedBytes: dropOut + dropErr}
		if code := r.env.print(rep); code != exitOK {
			return code
		}
	} else {
		if unstarted != nil {
			r.env.explain(unstarted)
		}
		r.tell()
	}
	r.tellReplaced()
	if r.failure != nil {
		r.env.explain(r.failure)
	}
	return rep.ExitCode
}

// tell says on stderr what a person would otherwise have to guess.
func (r *runner) tell() {
	rep, res, lim := &r.report, &r.result, r.report.Limits
	why := ""
	if rep.Ending != api.EndExit && rep.Ending != api.EndSignal {
		var try string
		why, try = endingText(api.ExecResult{Ending: rep.Ending, Reason: res.Reason}, lim, "berm run", "berm run")
		r.env.note("%s: %s", rep.Ending, why)
		if try != "" {
			fmt.Fprintf(r.env.Stderr, "try: %s\n", try)
		}
	}
	switch {
	case r.unread != nil:
		r.env.note("output: nobody read it; up to %d bytes are lost", r.unread.Lost)
	case r.result.Reason != "" && r.result.Reason != why:
		r.env.note("output: %s", r.result.Reason)
	}
	quiet := rep.Ending == api.EndProcesses || rep.Ending == api.EndExit && rep.ExitCode == 0 // it got on with what it had
	if !quiet && slices.Contains(rep.CapsHit, api.CapProcesses) {
		r.env.note("processes: the cap of %d was reached", lim.Pids)
	}
	if slices.Contains(rep.CapsHit, api.CapDisk) {
		r.env.note("disk: the cap of %s was reached", sizeText(lim.DiskBytes))
	}
	r.tellHere()
	if r.late != nil && (rep.ExitCode != 0 || isTerminal(r.env.Stderr)) {
		r.env.explain(r.late)
	}
	var wire []api.Denial
	for _, d := range rep.Denied {
		if ofWire(d) {
			wire = append(wire, d)
			continue
		}
		r.env.note("out: %s: %s", d.Target, d.Reason)
		if d.Fix != "" {
			fmt.Fprintf(r.env.Stderr, "try: %s\n", oneLine(d.Fix))
		}
	}
	if r.opt.wire.learn {
		r.env.tellWanted(rep.Wanted)
	} else {
		r.env.tellDenied(wire, rep.DeniedTruncated)
		r.env.tellFaults(rep.Faults)
	}
}

// endingText says why a command that did not end by itself is over, and what to
// try: exec is what runs it again, create what makes its sandbox larger.
func endingText(res api.ExecResult, lim api.Limits, exec, create string) (why, try string) {
	switch res.Ending {
	case api.EndTimeout:
		why = "still running after " + timeText(lim.TimeoutSeconds)
		try = exec + " --timeout " + timeText(4*lim.TimeoutSeconds)
	case api.EndMemory:
		why = "reached its cap of " + sizeText(lim.MemoryBytes)
		try = create + " --memory " + sizeText(2*lim.MemoryBytes)
	case api.EndProcesses:
		why = fmt.Sprintf("reached its cap of %d tasks", lim.Pids)
		try = fmt.Sprintf("%s --pids %d", create, 4*lim.Pids)
	case api.EndOutput:
		why = fmt.Sprintf("wrote more than %d times its limit of %s", api.FloodFactor, sizeText(lim.OutputBytes))
		try = create + " --output-limit " + sizeText(8*lim.OutputBytes)
	case api.EndKilled, api.EndHostFailure, api.EndPolicy, api.EndTTL, api.EndIdle:
		why = res.Reason
	}
	if why == "" {
		why = "ended it"
	}
	return why, try
}

// tellReplaced names files of the caller's that have another content now, if
// the place was not named.
func (r *runner) tellReplaced() {
	if n := len(r.replaced); n > 0 {
		const most = 10
		names := strings.Join(r.replaced[:min(n, most)], ", ")
		if n > most {
			names += fmt.Sprintf(" and %d more", n-most)
		}
		files := "files that were"
		if n == 1 {
			files = "file that was"
		}
		r.env.note("out: replaced %d %s there: %s", n, files, names)
	}
}

// print writes v as JSON and returns the exit code of that.
func (env *Env) print(v any) int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	for err == nil && b.Len() > 0 {
		if _, err = env.Stdout.Write(b.Next(16 << 10)); err == nil && env.took != nil {
			env.took()
		}
	}
	if err != nil {
		return env.fail(&fault{"standard output", unwrapPath(err).Error(), "send it to a place that takes it"})
	}
	return exitOK
}

// timeText is a time as a flag takes it.
func timeText(seconds float64) string {
	s := time.Duration(seconds * float64(time.Second)).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeText is a size as a flag takes it.
func sizeText(n int64) string {
	for i, unit := range []string{"t", "g", "m", "k"} {
		if u := int64(1) << (40 - 10*i); n >= u && n%u == 0 {
			return fmt.Sprintf("%d%s", n/u, unit)
		}
	}
	return fmt.Sprint(n)
}
