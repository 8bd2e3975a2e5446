package guest

import "context"

// A Watcher tells what changes below a directory of the guest.
type Watcher struct {
	ca  *call
	es  entries
	dir string
}

// Watch begins to watch dir, and with recursive every directory below it, as
// many as the guest has room for. Changes from then on are in Next, at least
// those made inside the guest.
func (c *Client) Watch(ctx context.Context, dir string, recursive bool) (*Watcher, error) {
	r := FileRequest{Path: dir, Recursive: recursive}
	ca, err := c.begin(ctx, MethodWatch, "watch", dir, r.Append(nil))
	if err != nil {
		return nil, err
	}
	return &Watcher{ca: ca, es: entries{ca: ca}, dir: dir}, nil
}

// Next waits for the next change. If whoever asks is slow some are dropped, and
// one says so. It returns io.EOF after dir itself is gone.
func (w *Watcher) Next(ctx context.Context) (FileEvent, error) {
	b, err := w.es.next(ctx)
	if err != nil {
		select {
		case <-w.ca.replied:
			if err := w.ca.err("watch", w.dir); err != nil {
				return FileEvent{}, err
			}
		default:
		}
		return FileEvent{}, err
	}
	var e FileEvent
	if !e.Decode(b) {
		return FileEvent{}, w.ca.c.lie("malformed event")
	}
	return e, nil
}

// Close ends the watch.
func (w *Watcher) Close() error {
	w.ca.cancel()
	return nil
}
