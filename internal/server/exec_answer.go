package server

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/keep"
	"github.com/bermhq/berm/internal/sandbox"
)

// What a plain answer holds of one stream: it is in this process's memory,
// whatever the limit of the sandbox is.
const (
	usualKept = 2 << 20 // of a sandbox without a limit
	maxKept   = 8 << 20
)

// kept is the output of a command for its answer, in memory of the pool. The
// engine may still be writing when it has given the result.
type kept struct {
	pool   *pool
	tenant string

	mu   sync.Mutex
	k    [2]*keep.Keeper
	took int64 // from the pool
	over bool  // what comes now comes too late
}

// newKept begins to keep; free must be called.
func newKept(limit int64, p *pool, tenant string) (*kept, error) {
	if err := p.start(tenant); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = usualKept
	}
	limit = min(limit, maxKept)
	return &kept{pool: p, tenant: tenant, took: poolAtStart, k: [2]*keep.Keeper{keep.New(limit), keep.New(limit)}}, nil
}

func (o *kept) free() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.k = [2]*keep.Keeper{keep.New(0), keep.New(0)}
	o.pool.give(o.tenant, o.took)
	o.took = 0
}

func (o *kept) write(s sandbox.Stream, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return nil
	}
	k := o.k[s]
	if grow := o.k[0].Len() + o.k[1].Len() + k.Room(len(p)) - o.took; grow > 0 {
		if o.pool.grow(o.tenant, grow) {
			o.took += grow
		} else {
			k.Freeze()
		}
	}
	k.Write(p)
	return nil
}

func (o *kept) lost(s sandbox.Stream, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.k[s].Skip(n)
	}
}

// size is about how long the answer will be.
func (o *kept) size() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.k[0].Len() + o.k[1].Len()
}

// answer writes the result with the output, an api.ExecAnswer, piece by piece:
// there is never a second copy of the output.
func (o *kept) answer(w io.Writer, res api.ExecResult, took time.Duration) error {
	o.mu.Lock()
	o.over = true
	k := o.k // nobody writes to them from here on
	o.mu.Unlock()
	var parts [2][3][]byte
	var drop [2]int64
	for i := range k {
		parts[i], drop[i] = k[i].Parts()
	}
	head, err := json.Marshal(struct {
		api.ExecResult
		Truncated  api.Truncated `json:"truncated"`
		TimedOut   bool          `json:"timed_out"`
		DurationMS int64         `json:"duration_ms"`
	}{res, api.Truncated{Stdout: drop[0] > 0, Stderr: drop[1] > 0, DroppedBytes: drop[0] + drop[1]},
		res.Ending == api.EndTimeout, took.Milliseconds()})
	if err != nil {
		panic(err) // our own types
	}
	b := bufio.NewWriterSize(w, 32<<10)
	b.Write(head[:len(head)-1])
	for i, name := range []string{"stdout", "stderr"} {
		b.WriteString(`,"` + name + `":`)
		if !writeText(b, parts[i]) {
			b.WriteString(`,"` + name + `_base64":"`)
			e := base64.NewEncoder(base64.StdEncoding, b)
			for _, p := range parts[i] {
				e.Write(p)
			}
			e.Close()
			b.WriteByte('"')
		}
	}
	b.WriteString("}\n")
	return b.Flush()
}

// writeText writes bytes as a string of JSON. Each that is no UTF-8 is replaced
// by itself, so that counts stay meaningful; ok says that none was.
func writeText(b *bufio.Writer, parts [3][]byte) (ok bool) {
	const hex = "0123456789abcdef"
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(parts[0]), bytes.NewReader(parts[1]), bytes.NewReader(parts[2])))
	ok = true
	b.WriteByte('"')
	for {
		c, size, err := r.ReadRune()
		if err != nil {
			break
		}
		switch {
		case c == utf8.RuneError && size == 1:
			ok = false
			b.WriteRune(c)
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(c))
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c == 0x7f || c == '<' || c == '>' || c == '&' || c == '\u2028' || c == '\u2029':
			b.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte(hex[c>>shift&15])
			}
		default:
			if _, err := b.WriteRune(c); err != nil {
				return ok // nobody reads
			}
		}
	}
	b.WriteByte('"')
	return ok
}
