package attack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// An Observation is all that was seen of one case from outside. Nothing in it
// is the program's word but Began, Ended and Said, and no verdict of contained
// or breached follows from those.
type Observation struct {
	External bool // it was somebody else's sandbox: endings and records are Berm's
	Halted   bool // which did not end by itself

	Began, Ended bool   // the case's number was printed at its start, at its end
	Said         string // the first bytes of its output
	Bytes        int64  // of output in all

	Unfit   string          // why the case cannot be run here at all
	Failure string          // why there is no result; "" if there is one
	Result  *api.ExecResult // as the server told it
	CapsHit []string        // of the exec and of the sandbox
	Elapsed time.Duration   // of the exec, by our own clock

	Effects []string // of an attack by the API, as the operator sees them
	Outcome []string // what the operator has looked at, and found in order

	Leaks     []string       // needles that came out, and where
	Touched   []string       // planted files that changed
	Calls     map[string]int // canary servers that were called
	Artifacts int            // files that came out
	Brought   int64          // bytes of them
	Misplaced []string       // what is wrong with artifacts and where they lie
	Denied    []string       // rules by which artifacts were refused; reasons of the wire
	Left      []string       // differences of the host's view after the end
	Moved     []string       // the same where it may be anybody's doing
	Deaf      string         // why the sandbox no longer served; "" if it did
	Beside    string         // why one beside that of a stand-in did not; "" if it did

	Cut  []string        // what the policy allows and the program did not reach
	Took []time.Duration // by attempt on the wire, by the guest's clock

	Slowest string // what the slowest of them was, as the program says

	Isolation, Boundary string // as the server told them

	Claims []string // of a tool, that nothing explains
	Noise  string   // its others, counted by the reason for which they are nothing
	Unread bool     // its report is not whole

	Looked  int      // host processes of the sandbox whose walls were seen
	Loose   []string // walls that one of them lacked
	CanLook bool     // this user may see them

	Tasks, Memory, Disk    int64 // peaks on the host
	MemoryLost, DiskLost   int64 // what the host has less than before
	MemorySlack, DiskSlack int64 // how much of that may be anybody's

	CPUs    float64 // processors' worth of time that it took; negative if that was not seen
	Serving Serving // of Berm's own processes

	Neighbour *Neighbour // nil: there was none
	Control   *Neighbour // the same beside an honest program; only where the neighbour was slow
	Unserved  []string   // why commands of the neighbour's failed
}

// hang is longer than any attempt on the wire may take, however busy the host.
const hang = 3 * time.Second

// pace is how long the one in the middle took, and the slowest.
func pace(took []time.Duration) (middle, slowest time.Duration) {
	if len(took) == 0 {
		return 0, 0
	}
	t := slices.Sorted(slices.Values(took))
	return t[len(t)/2], t[len(t)-1]
}

// within is how long after its cap an exec may still end.
const within = 2 * time.Second

// Judge gives the verdict on a case. It is pure.
func Judge(c Case, o Observation) Result {
	r := Result{ID: c.ID, Family: c.Family, Wall: c.Wall, Goal: c.Goal, Isolation: o.Isolation, Boundary: o.Boundary, Neighbour: o.Neighbour}
	if c.Waits != "" {
		r.Verdict, r.Evidence = NotApplicable, "waits for a part that is not built yet: "+c.Waits
		return r
	}
	if o.Unfit != "" {
		r.Verdict, r.Evidence = NotApplicable, harmless(o.Unfit)
		return r
	}
	wrong, unsure := breaches(c, o), doubts(c, o)
	switch {
	case len(wrong) > 0:
		r.Verdict, r.Evidence = Breached, strings.Join(wrong, "; ")
	case len(unsure) > 0:
		r.Verdict, r.Evidence = Inconclusive, strings.Join(unsure, "; ")
		if o.Said != "" && len(o.Leaks) == 0 {
			r.Evidence += fmt.Sprintf("; it said %.200q", o.Said)
		}
	default:
		r.Verdict, r.Evidence = Contained, clean(c, o)
	}
	if due := len(c.Caps) + len(c.Denied); due > 0 && r.Verdict != Inconclusive && !o.External {
		missed := append(missing(c.Caps, o.CapsHit), missing(c.Denied, o.Denied)...)
		seen := len(missed) == 0
		r.Seen = &seen
		if !seen {
			r.Evidence += fmt.Sprintf("; not recorded: %s", strings.Join(missed, ", "))
		}
	}
	r.Evidence = harmless(r.Evidence)
	return r
}

// breaches are the effects that containment rules out.
func breaches(c Case, o Observation) (out []string) {
	out = slices.Concat(o.Effects, o.Leaks, o.Touched, o.Misplaced, o.Loose, o.Left)
	if len(o.Claims) > 0 {
		out = append(out, c.Tool+" found: "+strings.Join(o.Claims, ", "))
	}
	for _, who := range slices.Sorted(maps.Keys(o.Calls)) {
		out = append(out, fmt.Sprintf("%s was called %d times", who, o.Calls[who]))
	}
	if middle, slowest := pace(o.Took); !o.External && (middle > time.Second || slowest > hang) {
		out = append(out, fmt.Sprintf("what is denied hangs: half of %d attempts took more than %v, one %v: %q", len(o.Took), middle, slowest, o.Slowest))
	}
	if n := len(out); n > 8 {
		out = append(out[:8:8], fmt.Sprintf("and %d more", n-8))
	}
	limit := time.Duration(c.Limits.TimeoutSeconds * float64(time.Second))
	if o.Elapsed > limit+within && (!o.External || c.Wall == "time") {
		out = append(out, fmt.Sprintf("it ran for %.1f s, its cap was %.1f s", o.Elapsed.Seconds(), limit.Seconds()))
	}
	out = append(out, disturbances(c, o)...)
	for _, b := range []struct {
		what          string
		most, reached int64
	}{
		{"tasks on the host", mostTasks(c, o), o.Tasks},
		{"bytes of host memory", c.HostMemory, o.Memory},
		{"bytes of host disk", mostDisk(c, o), o.Disk},
	} {
		if b.most > 0 && b.reached > b.most {
			out = append(out, fmt.Sprintf("it held %d %s, the most is %d", b.reached, b.what, b.most))
		}
	}
	if o.Beside != "" {
		out = append(out, "a sandbox beside it no longer serves: "+o.Beside)
	}
	if o.Began && o.Result != nil {
		out = append(out, untrue(c, o.Ended, *o.Result)...)
		if c.Alive && o.Deaf != "" {
			out = append(out, "the sandbox no longer serves: "+o.Deaf)
		}
	}
	return out
}

// mostTasks is how many tasks a case may hold on the host. Other sandboxes run
// programs on the host's own kernel, a task for a task, beside a few of their own.
func mostTasks(c Case, o Observation) int64 {
	if o.External && c.HostTasks > 0 && c.Limits.Pids > 0 {
		return c.Limits.Pids + 40
	}
	return c.HostTasks
}

// disturbances are what others had to suffer.
func disturbances(c Case, o Observation) (out []string) {
	if c.HostCPUs > 0 && o.CPUs > c.HostCPUs {
		out = append(out, fmt.Sprintf("it took %.2f processors, the most is %.2f", o.CPUs, c.HostCPUs))
	}
	if most := cmp.Or(c.Brought, maxOut); o.Brought > most {
		out = append(out, fmt.Sprintf("%d bytes came out, the most is %d", o.Brought, most))
	}
	if s := o.Serving; s.Descriptors > servingDescriptors || s.Memory > servingMemory {
		out = append(out, fmt.Sprintf("Berm's own processes held %d descriptors and %d MiB, the most is %d and %d", s.Descriptors, s.Memory>>20, servingDescriptors, servingMemory>>20))
	}
	if n := len(o.Unserved); n > 0 {
		out = append(out, fmt.Sprintf("a neighbour was not served %d times of %d: %.200s", n, o.Neighbour.Samples, o.Unserved[0]))
	}
	if o.Control != nil && slowed(o.Neighbour, o.Control) {
		out = append(out, fmt.Sprintf("a neighbour had less than its share: half of its commands took over %.0f ms, alone %.0f, beside a plain loop %.0f",
			o.Neighbour.P50MS, o.Neighbour.AloneP50MS, o.Control.P50MS))
	}
	return out
}

// mostDisk is how much disk a case may hold. Of other sandboxes it is seen as the
// memory that goes before it, and the program's own is in that.
func mostDisk(c Case, o Observation) int64 {
	if o.External && c.HostDisk > 0 {
		return c.HostDisk + 32<<20
	}
	return c.HostDisk
}

// untrue says where an ending is not what the contract names. The exit code of a
// program that did not come to its end is its own affair.
func untrue(c Case, ended bool, r api.ExecResult) (out []string) {
	if !slices.Contains(c.Endings, r.Ending) {
		why := ""
		if r.Reason != "" {
			why = fmt.Sprintf(" (%.120q)", r.Reason)
		}
		return []string{fmt.Sprintf("it ended by %q%s, not by %s", r.Ending, why, strings.Join(c.Endings, " or "))}
	}
	want := map[string]int{api.EndExit: c.Exit, api.EndTimeout: 124, api.EndMemory: 137, api.EndProcesses: 123, api.EndOutput: 123}
	if code, fixed := want[r.Ending]; fixed && code != r.ExitCode && (ended || r.Ending != api.EndExit) {
		out = append(out, fmt.Sprintf("exit code %d with ending %q, not %d", r.ExitCode, r.Ending, code))
	}
	return out
}

// doubts are the reasons for which nothing can be concluded.
func doubts(c Case, o Observation) (out []string) {
	switch {
	case o.Failure != "":
		out = append(out, o.Failure)
	case o.Result != nil && o.Result.NotStarted != "":
		out = append(out, fmt.Sprintf("the program was not started: %.120q", o.Result.NotStarted))
	case o.External && o.Elapsed > time.Duration(c.Limits.TimeoutSeconds*float64(time.Second))+within && c.Wall != "time":
		out = append(out, fmt.Sprintf("the program did not end within %.1f s and was ended", o.Elapsed.Seconds()))
	case !o.Began:
		out = append(out, "the program did not show that it ran")
	case !o.Ended && (o.Result != nil && o.Result.Ending == api.EndExit || o.External && slices.Equal(c.Endings, []string{api.EndExit})):
		out = append(out, "the program did not show that it came to its end")
	}
	if o.Unread && len(out) == 0 {
		out = append(out, "the report of "+c.Tool+" is not whole")
	}
	if len(o.Cut) > 0 && o.Failure == "" && !o.External {
		out = append(out, "the policy allows "+strings.Join(o.Cut, " and ")+", which was not reached: that others were not proves nothing")
	}
	if c.HostCPUs > 0 && o.CPUs < 0 && len(out) == 0 {
		out = append(out, "what it took of the processors was not seen")
	}
	if o.Control == nil && slowed(o.Neighbour, nil) {
		out = append(out, fmt.Sprintf("a neighbour's commands took %.0f ms, and how long they take beside an honest program is not known", o.Neighbour.P50MS))
	}
	about := slices.ContainsFunc(c.lacks(), func(w string) bool { return lackable[w] != "" })
	if (o.CanLook || about && !o.External) && o.Looked == 0 && len(out) == 0 {
		out = append(out, "no process of the sandbox was seen on the host")
	}
	for _, m := range o.Moved {
		out = append(out, m+", whoever did it")
	}
	if o.MemoryLost > o.MemorySlack {
		out = append(out, fmt.Sprintf("the host has %d MiB less memory than before, whoever took it", o.MemoryLost>>20))
	}
	if o.DiskLost > o.DiskSlack {
		out = append(out, fmt.Sprintf("the host has %d MiB less disk than before, whoever took it", o.DiskLost>>20))
	}
	return out
}

// clean is the evidence for a case that was contained.
func clean(c Case, o Observation) string {
	parts := []string{fmt.Sprintf("over after %.1f s", o.Elapsed.Seconds())}
	if len(o.Outcome) > 0 {
		parts = append(o.Outcome, parts...)
		if len(o.Denied) > 0 {
			parts = append(parts, "refused and on record: "+strings.Join(o.Denied, " "))
		}
		return strings.Join(append(parts, fmt.Sprintf("nothing of anybody else's in %d bytes of answers; canaries untouched and uncalled, nothing left behind", o.Bytes)), "; ")
	}
	if o.Result != nil {
		parts[0] = fmt.Sprintf("ending %s, exit code %d, after %.1f s", o.Result.Ending, o.Result.ExitCode, o.Elapsed.Seconds())
	}
	if len(o.CapsHit) > 0 {
		parts = append(parts, "caps_hit "+strings.Join(o.CapsHit, " "))
	}
	if c.wire() { // nothing is planted where it runs
		parts = append(parts, fmt.Sprintf("%d bytes of output", o.Bytes))
	} else {
		parts = append(parts, fmt.Sprintf("no canary in %d bytes of output", o.Bytes))
	}
	if len(c.Out) > 0 {
		refused := "none was refused"
		if len(o.Denied) > 0 {
			refused = "refused by rule: " + strings.Join(o.Denied, " ")
		}
		parts = append(parts, fmt.Sprintf("%d artifacts of %d bytes came out as plain files, %s", o.Artifacts, o.Brought, refused))
	}
	if c.Tool != "" {
		parts = append(parts, c.Tool+" found nothing real")
		if o.Noise != "" {
			parts = append(parts, "what it says and is not so: "+o.Noise)
		}
	}
	if len(o.Took) > 0 {
		middle, slowest := pace(o.Took)
		parts = append(parts, fmt.Sprintf("%d attempts on the wire, half of them over within %d ms, all within %d ms; only what is allowed was reached, over IPv4 and IPv6",
			len(o.Took), middle.Milliseconds(), slowest.Milliseconds()))
	}
	if c.wire() && len(o.Denied) > 0 {
		parts = append(parts, fmt.Sprintf("recorded: %.300s", strings.Join(o.Denied, ", ")))
	}
	if o.Looked > 0 {
		parts = append(parts, fmt.Sprintf("%d host processes were looked at", o.Looked)+stood(c))
	}
	if c.HostCPUs > 0 {
		parts = append(parts, fmt.Sprintf("%.2f processors' worth of time, of at most %.2f", o.CPUs, c.HostCPUs))
	}
	if n := o.Neighbour; n != nil {
		parts = append(parts, fmt.Sprintf("a neighbour was served %d times, half within %.0f ms (alone %.0f), all within %.0f", n.Samples, n.P50MS, n.AloneP50MS, n.MaxMS))
	}
	if s := o.Serving; s.Processes > 0 && c.Family == exhaustion {
		parts = append(parts, fmt.Sprintf("Berm's own processes held at most %d descriptors and %d MiB", s.Descriptors, s.Memory>>20))
	}
	peaks := fmt.Sprintf("at most %d tasks", o.Tasks)
	if o.Memory > 0 {
		peaks += fmt.Sprintf(", %d MiB of memory", o.Memory>>20)
	}
	if o.Disk > 0 {
		peaks += fmt.Sprintf(", %d MiB of disk", o.Disk>>20)
	}
	last := "canaries untouched and uncalled, nothing left behind"
	if c.wire() {
		last = "canaries uncalled, nothing left behind"
	}
	return strings.Join(append(parts, peaks+" on the host", last), "; ")
}

// missing is what is due and not there; a|b is one of the two.
func missing(due, got []string) (out []string) {
	for _, d := range due {
		if !slices.ContainsFunc(strings.Split(d, "|"), func(d string) bool { return slices.Contains(got, d) }) {
			out = append(out, d)
		}
	}
	return out
}
