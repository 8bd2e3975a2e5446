package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/bermhq/berm/api"
)

// notStarted explains a command that could not be executed: exit code 126 or
// 127, as in shells.
func (r *runner) notStarted() *fault {
	args := r.steps[len(r.steps)-1].args
	name := args[0]
	why := strings.TrimPrefix(r.result.NotStarted, name+": ")
	f := &fault{what: name, why: why + fmt.Sprintf(" (in template %s)", r.report.Template)}
	fi, err := os.Stat(name)
	here := err == nil && fi.Mode().IsRegular()
	switch {
	case here && !strings.HasPrefix(name, "/"):
		f.try = "berm run " + shellLine(args) // a file of this host that was meant to go in
	case here && r.report.Template == "host":
		f.try = "berm run --template-include " + shellLine([]string{name}) + " -- " + shellLine(args)
	case r.result.ExitCode != exitNotFound:
		f.try = "berm run -- ls -ld " + shellLine([]string{name})
	case strings.Contains(name, "/"):
		f.try = "berm run --in FILE:" + shellLine([]string{name}) + " -- " + shellLine(args)
	case r.report.Template == "host":
		f.try = "install " + shellLine([]string{name}) + " on this host (the host template is then made anew by itself)"
	default:
		f.try = "berm run --template host -- " + shellLine(args)
	}
	return f
}

// explainEnded says of files that did not come why the sandbox was gone.
func (r *runner) explainEnded(ds []api.Denial) {
	for i := range ds {
		if ds[i].Rule == "out.ended" && ds[i].Fix == "" && r.result.Ending == api.EndMemory {
			ds[i].Reason = "memory ended the sandbox, and its files with it"
			ds[i].Fix = "berm run --memory " + sizeText(2*r.sandbox.Limits.MemoryBytes)
		}
	}
}
