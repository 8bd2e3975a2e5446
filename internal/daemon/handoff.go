package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// A handoff passes connections between two processes over a socket that both
// inherited, so that the worker needs no name that anybody else could find.
type handoff struct{ conn *net.UnixConn }

// dial makes a pair, keeps one end and hands the other over.
func (h handoff) dial(context.Context) (net.Conn, error) {
	ours, theirs, err := jail.Pair(unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	_, _, err = h.conn.WriteMsgUnix([]byte{1}, unix.UnixRights(int(theirs.Fd())), nil)
	if err != nil {
		ours.Close()
		return nil, err
	}
	return jail.Conn(ours)
}

// tell sends one message ahead of all connections; hear receives it.
func (h handoff) tell(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = h.conn.Write(b)
	}
	return err
}

// maxSetup bounds that message: the presets of a run are in it. The socket's own
// buffer holds more.
const maxSetup = 160 << 10

func (h handoff) hear(v any) error {
	b := make([]byte, maxSetup)
	n, err := h.conn.Read(b)
	if err != nil {
		return err
	}
	return json.Unmarshal(b[:n], v)
}

// Accept, Close and Addr make the other end a net.Listener.
func (h handoff) Accept() (net.Conn, error) {
	for {
		var b [1]byte
		oob := make([]byte, unix.CmsgSpace(4))
		n, oobn, _, _, err := h.conn.ReadMsgUnix(b[:], oob)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, net.ErrClosed
		}
		switch files := jail.Rights(oob[:oobn]); len(files) {
		case 0: // nothing came along
		case 1:
			return jail.Conn(files[0])
		default: // cannot be: there is room for one
			for _, f := range files {
				f.Close()
			}
		}
	}
}

func (h handoff) Close() error   { return h.conn.Close() }
func (h handoff) Addr() net.Addr { return h.conn.LocalAddr() }

// inherited is a socket that the starter of this process left at descriptor fd.
func inherited(fd int) (*net.UnixConn, error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "inherited")
	if f == nil {
		return nil, errors.New("not started by berm")
	}
	c, err := jail.Conn(f)
	if err != nil {
		return nil, errors.New("not started by berm")
	}
	return c, nil
}
