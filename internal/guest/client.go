package guest

import (
	"context"
	"errors"
	"io"
)

type Client struct{ done chan struct{} }
type Process struct{}

var errTodo = errors.New("not yet")

func New(nc io.ReadWriteCloser, opt Options) *Client                      { return &Client{} }
func (c *Client) Hello(ctx context.Context) (Hello, error)                { return Hello{}, errTodo }
func (c *Client) Close() error                                            { return nil }
func (c *Client) Done() <-chan struct{}                                   { return c.done }
func (c *Client) Err() error                                              { return errTodo }
func (c *Client) Start(ctx context.Context, s Start) (*Process, error)    { return nil, errTodo }
func (p *Process) Read(ctx context.Context) (Stream, []byte, error)       { return 0, nil, errTodo }
func (p *Process) Exit() Exit                                             { return Exit{} }
func (p *Process) Write(b []byte) (int, error)                            { return 0, errTodo }
func (p *Process) CloseStdin() error                                      { return errTodo }
func (p *Process) Resize(rows, cols uint16) error                         { return errTodo }
func (p *Process) Signal(sig int) error                                   { return errTodo }
func (p *Process) Kill(ctx context.Context) error                         { return errTodo }
func (c *Client) Stat(ctx context.Context, path string) (FileInfo, error) { return FileInfo{}, errTodo }
func (c *Client) List(ctx context.Context, dir string, depth, limit int) ([]FileInfo, error) {
	return nil, errTodo
}
func (c *Client) Glob(ctx context.Context, pattern string, limit int) ([]FileInfo, error) {
	return nil, errTodo
}
func (c *Client) ReadFile(ctx context.Context, path string, maxBytes int64) (io.ReadCloser, error) {
	return nil, errTodo
}
func (c *Client) WriteFile(ctx context.Context, path string, mode uint32, uid, gid uint32, r io.Reader) error {
	return errTodo
}
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, uid, gid uint32) error {
	return errTodo
}
func (c *Client) Move(ctx context.Context, from, to string) error               { return errTodo }
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error { return errTodo }
func (c *Client) TarIn(ctx context.Context, dir string, uid, gid uint32, r io.Reader) error {
	return errTodo
}
func (c *Client) TarOut(ctx context.Context, dir string, paths []string) (io.ReadCloser, error) {
	return nil, errTodo
}
func (c *Client) Usage(ctx context.Context) (Usage, error)       { return Usage{}, errTodo }
func (c *Client) Control(ctx context.Context, id Identity) error { return errTodo }
