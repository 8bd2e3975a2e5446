package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// Files measures one large file on its way in and out, in MiB per second,
// against the same bytes through the standard input and output of `cat` in the
// same sandbox: that has the same wire and no notion of a file.
func Files(ctx context.Context, o Options, bytes int64) (Report, error) {
	doc, err := o.Client.Doctor(ctx)
	if err != nil {
		return Report{}, err
	}
	o.note("creating a sandbox")
	sb, err := o.Client.Create(ctx, api.CreateRequest{Template: o.Template, TTLSeconds: 1800,
		Limits: api.Limits{DiskBytes: 2*bytes + 256<<20, MemoryBytes: 1 << 30, TimeoutSeconds: 900,
			OutputBytes: max(bytes/32, 1<<20)}})
	if err != nil {
		return Report{}, err
	}
	defer o.Client.Delete(context.WithoutCancel(ctx), sb.SandboxID)
	rate := func(f func() error) (float64, error) {
		began := time.Now()
		err := f()
		return float64(bytes) / (1 << 20) / time.Since(began).Seconds(), err
	}
	cat := func(cmd string, sio client.Stdio) func() error {
		return func() error {
			res, err := o.Client.Exec(ctx, sb.SandboxID, api.ExecRequest{Cmd: cmd, Stdin: sio.Stdin != nil}, sio)
			if err == nil && res.ExitCode != 0 {
				err = fmt.Errorf("%s: %s, exit code %d", cmd, res.Ending, res.ExitCode)
			}
			return err
		}
	}
	var in, catIn, out, catOut []float64
	for i := range o.Rounds {
		for _, c := range []struct {
			name string
			to   *[]float64
			do   func() error
		}{
			{"cat in", &catIn, cat("cat > a", client.Stdio{Stdin: io.LimitReader(pattern{}, bytes)})},
			{"file in", &in, func() error {
				n, err := o.Client.WriteFile(ctx, sb.SandboxID, "/workspace/b", 0o644, io.LimitReader(pattern{}, bytes))
				if err == nil && n != bytes {
					err = fmt.Errorf("%d of %d bytes went in", n, bytes)
				}
				return err
			}},
			{"cat out", &catOut, cat("dd if=b bs=1M status=none", client.Stdio{Stdout: io.Discard})},
			{"file out", &out, func() error {
				f, err := o.Client.OpenFile(ctx, sb.SandboxID, "/workspace/b")
				if err != nil {
					return err
				}
				defer f.Close()
				n, err := io.Copy(io.Discard, f)
				if err == nil && n != bytes {
					err = fmt.Errorf("%d of %d bytes came out", n, bytes)
				}
				return err
			}},
		} {
			o.note(fmt.Sprintf("round %d of %d: %s, %d MiB", i+1, o.Rounds, c.name, bytes>>20))
			r, err := rate(c.do)
			if err != nil {
				return Report{}, err
			}
			*c.to = append(*c.to, r)
		}
		if _, err := o.Client.ExecPlain(ctx, sb.SandboxID, api.ExecRequest{Cmd: "rm -f a b"}); err != nil {
			return Report{}, err
		}
	}
	var rows []Row
	for _, p := range []struct {
		name      string
		ours, cat []float64
	}{{"in", in, catIn}, {"out", out, catOut}} {
		base := row("cat "+p.name, "MiB/s", p.cat)
		r := row("file "+p.name, "MiB/s", p.ours)
		r.Baseline, r.RatioP50 = base.Name, ratio(p.ours, p.cat)
		rows = append(rows, r, base)
	}
	return Report{Host: doc.Host, Rows: rows}, nil
}

// pattern reads as bytes that are neither all alike nor costly to make.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += len(block) {
		copy(p[i:], block)
	}
	return len(p), nil
}

var block = func() []byte {
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(i*7 ^ i>>8)
	}
	return b
}()
