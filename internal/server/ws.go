package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/coder/websocket"
)

const (
	// maxMessage bounds one message of a WebSocket, both ways.
	maxMessage = maxBody
	pingEvery  = 20 * time.Second
)

// A wsConn is the server's end of a WebSocket. A client that takes nothing, or
// answers no ping, loses it.
type wsConn struct {
	c       *websocket.Conn
	timeout time.Duration // of one write
	ctx     context.Context
	cancel  context.CancelCauseFunc
	busy    func() bool // says that reading stands still for a good reason
	pinger  sync.WaitGroup
}

// webSocket upgrades a request. x.ctx ends with the connection; end must be
// called. Without a connection and an error the answer has been given.
func (s *server) webSocket(w http.ResponseWriter, r *http.Request, busy func() bool) (*wsConn, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "this route is a WebSocket", Hint: "connect with ws:// or wss://"}
	}
	// An Origin other than the host that was called is refused in there too.
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil, nil
	}
	c.SetReadLimit(maxMessage)
	x := &wsConn{c: c, timeout: s.opt.WriteTimeout, busy: busy}
	x.ctx, x.cancel = s.untilStop(r.Context(), 0)
	x.pinger.Go(x.ping)
	return x, nil
}

func (x *wsConn) ping() {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-t.C:
			if x.busy != nil && x.busy() {
				continue // its pong would not be read
			}
			ctx, cancel := context.WithTimeout(x.ctx, pingEvery)
			err := x.c.Ping(ctx)
			cancel()
			if err != nil && (x.busy == nil || !x.busy()) {
				x.cancel(nil)
				return
			}
		}
	}
}

// end says goodbye and closes.
func (x *wsConn) end() {
	if x.ctx.Err() == nil {
		x.c.Close(websocket.StatusNormalClosure, "")
	}
	x.cancel(nil)
	x.c.CloseNow()
	x.pinger.Wait()
}

// read returns the next message. Only one goroutine may read, and it must: pings
// are answered in there.
func (x *wsConn) read() (binary bool, p []byte, err error) {
	kind, p, err := x.c.Read(x.ctx)
	return kind == websocket.MessageBinary, p, err
}

func (x *wsConn) write(kind websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(x.ctx, x.timeout)
	defer cancel()
	err := x.c.Write(ctx, kind, p)
	if err != nil {
		x.cancel(nil)
	}
	return err
}

func (x *wsConn) binary(p []byte) error { return x.write(websocket.MessageBinary, p) }

func (x *wsConn) json(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	return x.write(websocket.MessageText, b)
}
