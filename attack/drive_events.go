package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// The log of a daemon is everybody's: what one sandbox has written into it must
// be little, and true.

// refusals is a program that is refused again and again, for as many targets as
// its argument says. It is bounded by itself as well: 2 seconds.
const refusals = `import socket, sys, time
stop, n, many = time.time() + 2, 0, int(sys.argv[1])
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while time.time() < stop:
    n += 1
    at = "192.0.2.1", 1000 + n % many
    s = socket.socket()
    s.settimeout(0.2)
    try:
        s.connect(at)
    except OSError:
        pass
    s.close()
    try:
        u.sendto(b"x", at)
    except OSError:
        pass
print(n)
`

// A flooder is a sandbox of the attacker's that is refused much, and a neighbour
// of the same tenant.
type flooder struct {
	*siege
	id    string
	n     *neighbour
	ended string // how its command did
	tries int
}

// refuse lets one be refused until its program or its sandbox is over.
func (s *siege) refuse(ctx context.Context, targets int, tags map[string]string) (*flooder, error) {
	f := &flooder{siege: s}
	var err error
	if f.n, err = moveIn(ctx, &Session{Client: s.mallory.Client}, ""); err != nil {
		return nil, err
	}
	sb, err := s.mallory.Create(ctx, api.CreateRequest{Egress: json.RawMessage("[]"), Tags: tags})
	if err != nil {
		return nil, err
	}
	f.id = sb.SandboxID
	var said bytes.Buffer
	f.n.listen(ctx)
	res, err := s.mallory.Exec(ctx, f.id, api.ExecRequest{Args: []string{"python3", "-c", refusals, strconv.Itoa(targets)}}, client.Stdio{Stdout: &bounded{&said, 64}})
	f.n.hush()
	s.o.Neighbour, s.o.Unserved = f.n.figures(), f.n.failed
	fmt.Fscan(&said, &f.tries)
	f.ended = res.Ending
	if err != nil {
		f.ended = err.Error()
	}
	return f, nil
}

// written is what the log has of the sandbox: how many lines and bytes, and how
// many refusals they tell of.
func (f *flooder) written(ctx context.Context) (lines, bytes, told int, err error) {
	events, err := f.events(ctx)
	for _, e := range events {
		if e.SandboxID != f.id {
			continue
		}
		b, _ := json.Marshal(e)
		lines, bytes = lines+1, bytes+len(b)
		var about struct{ Count int }
		if e.Type == api.EventEgressDenied && decodeInto(e.Data, &about) {
			told += max(about.Count, 1)
		}
	}
	return lines, bytes, told, err
}

// What the log may have of a sandbox: some lines for each target, and little more
// than the 4 MiB that it has for a minute.
const (
	mostLines = 100
	mostBytes = 6 << 20
)

// driveRefusals has one sandbox refused by the thousand.
func driveRefusals(ctx context.Context, s *siege) error {
	f, err := s.refuse(ctx, 5, nil)
	if err != nil {
		return err
	}
	if _, err := s.mallory.Delete(ctx, f.id); err != nil { // what was counted is written at the end
		return err
	}
	lines, bytes, told, err := f.written(ctx)
	s.check(lines <= mostLines, fmt.Sprintf("%d attempts are %d lines and %d bytes in the log", f.tries, lines, bytes),
		fmt.Sprintf("%d attempts are %d lines in the log, the most is %d", f.tries, lines, mostLines))
	if told >= f.tries && f.tries > 0 {
		s.saw("which tell of %d refusals", told)
		s.o.Denied = union(s.o.Denied, []string{api.EventEgressDenied})
	}
	return err
}

// driveBudget has the log filled by refusals that are as long as they can be.
func driveBudget(ctx context.Context, s *siege) error {
	tags := map[string]string{}
	for i := range 60 {
		tags[fmt.Sprintf("long-%02d", i)] = strings.Repeat("x", 1000)
	}
	f, err := s.refuse(ctx, 60000, tags)
	if err != nil {
		return err
	}
	var ending string
	for end := time.Now().Add(2 * time.Second); ending == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		events, err := s.events(ctx, api.EventSandboxEnded)
		if err != nil {
			return err
		}
		for _, e := range events {
			var about struct{ Ending string }
			if e.SandboxID == f.id && decodeInto(e.Data, &about) {
				ending = about.Ending
			}
		}
	}
	if ending == api.EndPolicy {
		s.o.CapsHit = union(s.o.CapsHit, []string{api.EndPolicy})
	}
	s.check(ending == api.EndPolicy, "it was ended by policy", fmt.Sprintf("it may go on: its command ended by %.80q, its sandbox by %q", f.ended, ending))
	lines, bytes, _, err := f.written(ctx)
	s.check(bytes <= mostBytes, fmt.Sprintf("the log has %d lines and %d bytes of it", lines, bytes), fmt.Sprintf("the log has %d lines and %d bytes of it, the most is %d", lines, bytes, mostBytes))
	return err
}

func init() {
	drivers["refusals"], drivers["budget"] = inTown(besiege(driveRefusals)), inTown(besiege(driveBudget))
}

// inTown lets a driver have a daemon of its own, that is gone afterwards.
func inTown(drive Driver) Driver {
	return func(ctx context.Context, d *Drive) (err error) {
		if d.run.town == nil {
			if _, err := d.run.found(ctx); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, d.run.abandon()) }()
		}
		return drive(ctx, d)
	}
}
