package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/bermhq/berm/api"
)

// maxHashed is how much of a file is hashed for the log. What is longer is
// recorded without a hash: it would cost as much as moving it.
const maxHashed = 64 << 20

// operate waits for its turn among the file operations of one sandbox, so that
// they leave room for its other calls; what it returns ends it.
func (b *box) operate(ctx context.Context) (func(), error) {
	select {
	case b.ops <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.gone:
		return nil, b.alive()
	}
	free := b.busy()
	return func() { <-b.ops; free() }, nil
}

// A tally counts and hashes what is moved, for the log.
type tally struct {
	e     *Engine
	b     *box
	actor string
	data  fileData
	h     hash.Hash // nil: not hashed
}

func (e *Engine) tally(b *box, actor string, data fileData) *tally {
	t := &tally{e: e, b: b, actor: actor, data: data}
	if e.opt.Journal != nil {
		t.h = sha256.New()
	}
	return t
}

// Write takes what has moved.
func (t *tally) Write(p []byte) (int, error) {
	t.data.Bytes += int64(len(p))
	if t.data.Bytes > maxHashed {
		t.h = nil
	}
	if t.h != nil {
		t.h.Write(p)
	}
	return len(p), nil
}

// record puts it on disk.
func (t *tally) record(typ string, partly bool) error {
	if t.h != nil && !partly {
		t.data.SHA256 = hex.EncodeToString(t.h.Sum(nil))
	}
	t.data.Partly = partly
	return t.e.happened(t.b, t.b.event(t.actor, typ, t.data))
}

// download opens what open opens, watched and recorded: the end is not told to
// the reader before it is on disk that this was read.
func (e *Engine) download(ctx context.Context, b *box, data fileData, open func(context.Context) (io.ReadCloser, error)) (io.ReadCloser, error) {
	done, err := b.operate(ctx)
	if err != nil {
		return nil, err
	}
	w := e.patience(ctx, b, 0)
	r, err := open(w.ctx)
	if err != nil {
		w.stop()
		done()
		return nil, w.explain(data.Op+" "+data.Path, err)
	}
	w.pause(0)
	return &reading{watched: watched{r: r, c: r, w: w, name: data.Path}, t: e.tally(b, CallerOf(ctx).Actor, data), done: done}, nil
}

// reading is a file, or a tar stream, on its way out.
type reading struct {
	watched
	t    *tally
	done func()
	told error // the end, once it was recorded
}

func (r *reading) Read(p []byte) (int, error) {
	if r.told != nil {
		return 0, r.told
	}
	n, err := r.watched.Read(p)
	r.t.Write(p[:n])
	if err == nil {
		return n, nil
	}
	r.told = err
	if rerr := r.t.record(api.EventFileRead, err != io.EOF); rerr != nil && err == io.EOF {
		r.told = rerr
	}
	return n, r.told
}

func (r *reading) Close() error {
	if r.done == nil {
		return nil
	}
	var err error
	if r.told == nil {
		r.told = errors.New("closed")
		err = r.t.record(api.EventFileRead, true)
	}
	err = errors.Join(r.watched.Close(), err)
	r.done()
	r.done = nil
	return err
}
