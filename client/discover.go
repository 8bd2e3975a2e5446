package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// NoDaemon says that nobody serves a state directory.
type NoDaemon struct {
	Dir string
	Err error
}

func (e *NoDaemon) Error() string { return "no daemon is running for " + e.Dir }
func (e *NoDaemon) Unwrap() error { return e.Err }

// Discover returns a client for the daemon in force: that of url (else
// BERM_URL) with token (else BERM_TOKEN), or else that of stateDir, by its
// socket and with the token that lies beside it. It returns *NoDaemon if nobody
// listens there; a url is not tried.
func Discover(stateDir, url, token string) (*Client, error) {
	if url == "" {
		url = os.Getenv("BERM_URL")
	}
	if token == "" {
		token = strings.TrimSpace(os.Getenv("BERM_TOKEN"))
	}
	if url != "" {
		c := New(Options{URL: url, Token: token})
		return c, c.bad
	}
	dial := dialSocket(filepath.Join(stateDir, "berm.sock"))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	nc, err := dial(ctx)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, &api.Error{Code: api.CodeTokenForbidden, Message: fmt.Sprintf("the daemon of %s is not yours: its socket cannot be opened", stateDir),
			Hint: "its user, or BERM_URL and BERM_TOKEN with a token from `berm token create`"}
	case err != nil:
		return nil, &NoDaemon{stateDir, err}
	}
	nc.Close()
	if token == "" {
		if token, err = ReadToken(filepath.Join(stateDir, "token")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return New(Options{Dial: dial, Token: token}), nil
}

// ReadToken reads a token from a file that holds nothing else.
func ReadToken(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(strings.Fields(token)) != 1 {
		return "", fmt.Errorf("token: %s does not hold one token", name)
	}
	return token, nil
}

// maxSocketPath is how long the name of a socket may be.
const maxSocketPath = 107

// dialSocket dials a unix socket, however long its name is.
func dialSocket(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		if len(path) <= maxSocketPath {
			return d.DialContext(ctx, "unix", path)
		}
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	}
}
