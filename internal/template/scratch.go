package template

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"

	"github.com/bermhq/berm/api"
)

// Scratch is an open file without a name on the disk of the state directory,
// for what is not to be held in memory; it is gone when it is closed.
func (s *Store) Scratch() (*os.File, error) { return s.images.Scratch() }

// Scratch is a file of the Store's.
func (c *Client) Scratch() (*os.File, error) {
	conn, err := c.open(context.Background())
	if err != nil {
		return nil, gone(err)
	}
	defer conn.Close()
	b, err := json.Marshal(request{Call: "scratch"})
	if err == nil {
		_, err = conn.Write(b)
	}
	if err != nil {
		return nil, gone(err)
	}
	var said [1]byte
	_, f, err := hearFile(conn, said[:])
	if err == nil && f == nil {
		err = errors.New("it has no room for a file")
	}
	if err != nil {
		return nil, gone(err)
	}
	return f, nil
}

// sendScratch answers such a call.
func sendScratch(ctx context.Context, c *net.UnixConn, s Service) {
	sc, ok := s.(interface{ Scratch() (*os.File, error) })
	if !ok {
		return
	}
	f, err := sc.Scratch()
	if err != nil {
		sendAnswer(c, answer{Error: &api.Error{Code: api.CodeHostFailure, Message: err.Error()}})
		return
	}
	defer f.Close()
	sendFile(c, []byte{msgEnd}, f)
}
