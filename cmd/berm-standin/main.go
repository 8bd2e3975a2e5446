// Command berm-standin is hostile: `berm attack` runs it in the place of a part of
// a sandbox, with all that this part holds, to see whether the walls around the
// part hold when what is behind them has been taken over. By its first argument it
// is the sentry ("runsc-sandbox"), or its gateway ("berm-gateway"); as PID 1 of a
// guest it is the agent. What it tries is named by the command that it is asked to
// execute. Whatever it tries it bounds by itself as well, in number, bytes and
// time, and it changes nothing that is not the suite's own, so that nothing is
// harmed where a wall is missing.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	switch name := filepath.Base(os.Args[0]); {
	case name == "berm-gateway":
		lieAsGateway()
	case name == "runsc-sandbox":
		standAsSentry(os.Args[1:])
	case os.Getpid() == 1:
		standAsAgent()
	default:
		fmt.Fprintln(os.Stderr, "berm-standin: this program is run by `berm attack`: it has no use of its own")
		fmt.Fprintln(os.Stderr, "try: berm help attack")
		os.Exit(125)
	}
}
