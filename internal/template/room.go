package template

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

// What makers leave free where the state directory is: the audit log lies there
// too, and without it nothing runs.
const (
	roomBytes = 1 << 30
	roomPart  = 20 // a twentieth, where that is less
	roomEvery = 200 * time.Millisecond
)

var errNoRoom = &api.Error{Code: api.CodeHostFailure, Message: "the disk of the state directory is almost full, so nothing more is unpacked to it",
	Hint: "berm template rm what is not needed, or make room"}

// spare is free space that may still be written, in bytes; 0: none, or it could
// not be asked. A file system that has no figure of its size has some.
func spare(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	if st.Blocks == 0 {
		return 1
	}
	size := int64(st.Bsize)
	keep := min(int64(roomBytes), int64(st.Blocks)*size/roomPart)
	return max(0, int64(st.Bavail)*size-keep)
}

// watchRoom ends what is made under the context it returns when the disk of dir
// gets full.
func watchRoom(ctx context.Context, dir string, free func(string) int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if free(dir) == 0 {
		cancel(errNoRoom)
	}
	go func() {
		t := time.NewTicker(roomEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if free(dir) == 0 {
					cancel(errNoRoom)
				}
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
