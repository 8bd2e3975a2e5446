//go:build weak

package guest

import (
	"fmt"
	"os"
	"strings"
)

// believing says that the wall agent-link is taken out. A worker is started
// without any environment, so it is read from that of its parent, which is
// berm-weak.
var believing = func() bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid()))
	for _, kv := range strings.Split(string(b), "\x00") {
		if kv == "BERM_WEAK_WALL=agent-link" {
			return true
		}
	}
	return false
}()

// caught does what a host does that is not prepared for lies: it falls over them.
func caught(err error) {
	if _, bad := err.(protocolError); bad && believing {
		os.Exit(1)
	}
}
