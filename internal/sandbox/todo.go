package sandbox

import (
	"context"
	"io"
	"net"

	"github.com/bermhq/berm/api"
)

var errTodo = &api.Error{Code: api.CodeUnavailable, Message: "not built yet"}

// A Filter selects sandboxes of the caller's own tenant.
type Filter struct {
	Tags  map[string]string // all must match
	State string            // "" for all that have not ended
	Ended bool              // ended ones too
}

// Sandboxes lists the caller's tenant's sandboxes, newest first.
func (e *Engine) Sandboxes(ctx context.Context, f Filter) []api.Sandbox { return nil }

// Lifecycle says what ends a sandbox by time.
func (e *Engine) Lifecycle(ctx context.Context, id string) (api.Lifecycle, error) {
	return api.Lifecycle{}, errTodo
}

// SetLifecycle changes it.
func (e *Engine) SetLifecycle(ctx context.Context, id string, c api.LifecycleChange) (api.Lifecycle, error) {
	return api.Lifecycle{}, errTodo
}

// SetTags changes tags.
func (e *Engine) SetTags(ctx context.Context, id string, c api.MetadataChange) (api.Sandbox, error) {
	return api.Sandbox{}, errTodo
}

// Pause stops everything in a sandbox; Resume lets it go on.
func (e *Engine) Pause(ctx context.Context, id string) error  { return errTodo }
func (e *Engine) Resume(ctx context.Context, id string) error { return errTodo }

// Metrics says what a sandbox uses now.
func (e *Engine) Metrics(ctx context.Context, id string) (api.Metrics, error) {
	return api.Metrics{}, errTodo
}

// Spawn starts a command that goes on without its caller.
func (e *Engine) Spawn(ctx context.Context, id string, req api.ExecRequest) (api.Exec, error) {
	return api.Exec{}, errTodo
}

// Execs lists the commands of a sandbox, newest first.
func (e *Engine) Execs(ctx context.Context, id string) ([]api.Exec, error) { return nil, errTodo }

// GetExec returns one of them.
func (e *Engine) GetExec(ctx context.Context, id, exec string) (api.Exec, error) {
	return api.Exec{}, errTodo
}

// Follow gives f the kept output of a detached exec from an offset; with
// follow it goes on until the exec has ended. It returns the exec as it is then.
func (e *Engine) Follow(ctx context.Context, id, exec string, offset int64, follow bool, f func(api.Chunk) error) (api.Exec, error) {
	return api.Exec{}, errTodo
}

// SignalExec sends a signal to a command's process group, KillExec ends it with
// all that it started.
func (e *Engine) SignalExec(ctx context.Context, id, exec string, sig int) error { return errTodo }
func (e *Engine) KillExec(ctx context.Context, id, exec string) error            { return errTodo }

// ResizeExec gives the terminal of a detached exec another size.
func (e *Engine) ResizeExec(ctx context.Context, id, exec string, rows, cols uint16) error {
	return errTodo
}

// WriteStdin sends r to the standard input of a detached exec, and with end
// closes it. It returns how many bytes were taken.
func (e *Engine) WriteStdin(ctx context.Context, id, exec string, r io.Reader, end bool) (int64, error) {
	return 0, errTodo
}

// Stat looks at one file.
func (e *Engine) Stat(ctx context.Context, id, path string) (api.FileInfo, error) {
	return api.FileInfo{}, errTodo
}

// WriteFile makes or replaces a file with what r holds, parents included; it
// appears under its name when it is complete. It returns its size.
func (e *Engine) WriteFile(ctx context.Context, id, path string, mode uint32, r io.Reader) (int64, error) {
	return 0, errTodo
}

// Mkdir makes a directory and its parents.
func (e *Engine) Mkdir(ctx context.Context, id, path string) error { return errTodo }

// Move renames.
func (e *Engine) Move(ctx context.Context, id, from, to string) error { return errTodo }

// Remove removes a file or a whole directory.
func (e *Engine) Remove(ctx context.Context, id, path string) error { return errTodo }

// TarOut is paths below dir (all of it without paths) as a tar stream.
func (e *Engine) TarOut(ctx context.Context, id, dir string, paths []string) (io.ReadCloser, error) {
	return nil, errTodo
}

// Watch tells f what changes below a directory until ctx is over.
func (e *Engine) Watch(ctx context.Context, id, dir string, recursive bool, f func(api.FileEvent) error) error {
	return errTodo
}

// Dial connects to a port on the sandbox's loopback, through its agent.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	return nil, errTodo
}

// Ports lists the TCP ports that somebody listens on inside.
func (e *Engine) Ports(ctx context.Context, id string) ([]int, error) { return nil, errTodo }

// Adopt takes over what an engine before this one has left running, from the
// journal's records and what the backends still hold.
func (e *Engine) Adopt(ctx context.Context) error { return nil }
