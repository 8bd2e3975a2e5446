// Command berm-sandbox is the program that a gvisor sandbox runs in: gVisor's
// own main, started by the keeper with argv[0] "runsc-sandbox"; and, with argv[0]
// "berm-gateway", the network of a sandbox, which is gVisor's stack. Berm embeds it
// and unpacks it below runtimes/ in the state directory; people never call it.
// It is a program of its own so that neither the command line nor the keeper
// pays for gVisor's size and start-up.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/runsc/cli/maincli"

	"github.com/bermhq/berm/internal/egress/gateway"
	"github.com/bermhq/berm/internal/jail"
)

func main() {
	if filepath.Base(os.Args[0]) == "berm-gateway" {
		os.WriteFile("/proc/self/comm", []byte("berm-gateway"), 0)
		os.Exit(gateway.Main(jail.ConfineGateway))
	}
	if a := os.Args[0]; a != "/proc/self/exe" && !strings.HasPrefix(filepath.Base(a), "runsc") {
		fmt.Fprintln(os.Stderr, "berm-sandbox: this program is run by berm: it has no use of its own")
		fmt.Fprintln(os.Stderr, "try: berm help")
		os.Exit(125)
	}
	// It is executed by descriptor, so ps knows it by a number. Only a name.
	os.WriteFile("/proc/self/comm", []byte("berm-sandbox"), 0)
	if ours() {
		usePrecompiled()
		skipTracePoints()
		keepNoFollow()
	}
	maincli.Main()
}
