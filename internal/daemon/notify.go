package daemon

import (
	"net"
	"os"
	"strings"
)

// A notifier tells the service manager, if one asked, how far we are. Its
// socket is opened while we still may.
type notifier struct{ conn net.Conn }

func newNotifier() notifier {
	addr := os.Getenv("NOTIFY_SOCKET")
	os.Unsetenv("NOTIFY_SOCKET")
	if addr == "" {
		return notifier{}
	}
	if strings.HasPrefix(addr, "@") {
		addr = "\x00" + addr[1:]
	}
	c, err := net.Dial("unixgram", addr)
	if err != nil {
		return notifier{}
	}
	return notifier{c}
}

func (n notifier) tell(state string) {
	if n.conn != nil {
		n.conn.Write([]byte(state))
	}
}
