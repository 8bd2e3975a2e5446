package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// bound says whether a create asks for a sandbox that lives no longer than its
// connection.
func bound(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), api.BoundProtocol)
}

// hold answers such a create and returns when the sandbox is to be no more: the
// connection ended, however, or the server is closing. The sandbox is deleted
// then, also if the answer never got through.
func (s *server) hold(w http.ResponseWriter, r *http.Request, sb api.Sandbox) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 20*time.Second)
		defer cancel()
		if _, err := s.e.Delete(ctx, sb.SandboxID); err != nil {
			s.opt.Log.Warn("a sandbox outlives its connection", "sandbox_id", sb.SandboxID, "error", err)
		}
	}()
	line, err := json.Marshal(sb)
	if err != nil {
		panic(err) // our own types
	}
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	defer nc.Close()
	defer context.AfterFunc(s.stopping, func() { nc.Close() })()
	defer context.AfterFunc(callOf(r).life, func() { nc.Close() })()
	nc.SetDeadline(time.Now().Add(s.opt.LastWord))
	_, err = fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\nX-Request-Id: %s\r\n\r\n%s\n",
		api.BoundProtocol, w.Header().Get("X-Request-Id"), line)
	if err != nil {
		return nil // there is nobody to tell
	}
	nc.SetDeadline(time.Time{})
	io.Copy(io.Discard, rw)
	return nil
}
