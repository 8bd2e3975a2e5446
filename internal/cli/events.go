package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const eventsAbout = `
Everything that was decided and done, in its order: one line an event, with its
sequence number, from the first that is kept. -f goes on with what comes, over a
restart of the daemon too; Ctrl-C leaves.

  berm events --sandbox $SB
  berm events -f --after end --type exec.started --json | jq .data
`

// eventFlags are the flags of what lists events.
func eventFlags(q *client.EventQuery, limit *int64, asJSON *bool) flags {
	return flags{
		{name: "type", value: "NOUN.VERB", help: "only events of this type (repeat)", set: more(&q.Types)},
		{name: "sandbox", value: "SANDBOX", help: "only of this sandbox", set: text(&q.SandboxID)},
		{name: "run", value: "ID", help: "only of this run", set: text(&q.RunID)},
		{name: "session", value: "NAME", help: "only of this session", set: text(&q.Session)},
		{name: "after", value: "SEQ", help: "only what came after this number; end is what is still to come", set: func(s string) error {
			if s == "end" {
				q.FromEnd = true
				return nil
			}
			n, err := parseWhole(s)
			q.After = uint64(n)
			return err
		}},
		{name: "limit", short: "n", value: "N", help: "at most so many", set: wholeNumber(limit)},
		{name: "json", help: "print one JSON object a line", set: toggle(asJSON)},
	}
}

func eventsVerb() verb {
	var q client.EventQuery
	var limit int64
	var follow, asJSON bool
	fs := append(flags{{name: "follow", short: "f", help: "go on with what comes", set: toggle(&follow)}}, eventFlags(&q, &limit, &asJSON)...)
	return verb{
		name: "events", summary: "show what was decided and done", usage: "[FLAG...]", flags: func() flags { return fs }, about: eventsAbout,
		run: ask("events", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			return a.events(ctx, q, limit, follow, asJSON)
		}),
	}
}

// events prints events; limit 0 is all.
func (a *asker) events(ctx context.Context, q client.EventQuery, limit int64, follow, asJSON bool) (err error) {
	if q.SandboxID != "" {
		if q.SandboxID, err = a.everSandbox(ctx, q.SandboxID); err != nil {
			return err
		}
	}
	ctx, in := a.interruptible(ctx, func() {}, time.Second)
	defer in.stop()
	shown := int64(0)
	show := func(e api.Event) error {
		if limit > 0 && shown >= limit {
			return io.EOF
		}
		shown++
		q.After, q.FromEnd = max(q.After, e.Seq), false
		if asJSON {
			return a.printed(e)
		}
		_, err := fmt.Fprintln(a.Stdout, eventLine(e))
		return err
	}
	if q.FromEnd && !follow {
		return &fault{"--after end", "is what is still to come", "berm events -f --after end"}
	}
	if follow {
		err := a.again(ctx, func() (bool, error) {
			from := q.After
			err := a.FollowEvents(ctx, q, func(e api.Event) error {
				if e.Seq <= q.After { // said again after a broken connection
					return nil
				}
				return show(e)
			})
			return q.After > from, err
		})
		return left(ctx, err)
	}
	for {
		from := q.After
		l, err := a.Events(ctx, q)
		if err != nil {
			return left(ctx, err)
		}
		for _, e := range l.Events {
			if err := show(e); err != nil {
				return left(ctx, err)
			}
		}
		if q.After = max(q.After, l.Next); len(l.Events) == 0 || q.After == from {
			return nil
		}
	}
}

// eventLine is an event on one line.
func eventLine(e api.Event) string {
	subject := short(e.SandboxID)
	if subject == "" {
		subject = "-"
	}
	return shownName(fmt.Sprintf("%-8d %s  %-17s %-12s %-12s %s", e.Seq, clockText(e.Time), e.Type, subject, short(e.Actor), compact(e.Data)))
}

func clockText(t string) string {
	at, err := time.Parse(time.RFC3339Nano, t)
	if err != nil {
		return "-"
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

func compact(data json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil || b.String() == "{}" || b.String() == "null" {
		return ""
	}
	return b.String()
}
