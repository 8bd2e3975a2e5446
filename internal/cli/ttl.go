package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

const ttlAbout = `
Without TIME it says what ends the sandbox by time. TIME is how much longer it may
live, from now on.

  berm ttl $SB 2h
  berm ttl --idle-timeout 30m $SB
`

func ttlVerb() verb {
	var ch api.LifecycleChange
	var idle float64
	var persistent, not, asJSON bool
	fs := flags{
		{name: "idle-timeout", value: "TIME", help: "end it when nobody used it for that long", set: period("idle-timeout", &idle)},
		{name: "persistent", help: "never end it for being idle", set: toggle(&persistent)},
		{name: "not-persistent", help: "end it for being idle again", set: toggle(&not)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "ttl", summary: "say or change how long a sandbox may live", usage: "[FLAG...] SANDBOX [TIME]", flags: func() flags { return fs }, about: ttlAbout,
		run: ask("ttl", fs, 1, 2, func(ctx context.Context, a *asker, args []string) error {
			if persistent && not {
				return &fault{"ttl", "--persistent and --not-persistent together", "berm help ttl"}
			}
			left := 0.0
			if len(args) == 2 {
				var err error
				if left, err = parsePeriod(args[1]); err != nil {
					return &fault{shellLine(args[1:]), err.Error(), "berm ttl " + shellLine(args[:1]) + " 2h"}
				}
			}
			id, err := a.sandbox(ctx, args[0])
			if err != nil {
				return err
			}
			if idle > 0 {
				ch.IdleTimeoutSeconds = &idle
			}
			if persistent || not {
				ch.Persistent = &persistent
			}
			if left > 0 {
				ttl, err := a.fromCreation(ctx, id, left)
				if err != nil {
					return err
				}
				ch.TTLSeconds = &ttl
			}
			var l api.Lifecycle
			if ch == (api.LifecycleChange{}) {
				l, err = a.Lifecycle(ctx, id)
			} else {
				l, err = a.SetLifecycle(ctx, id, ch)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(l)
			}
			ends := l.ExpiresAt
			if left := until(l.ExpiresAt); left != "" {
				ends += " (in " + left + ")"
			}
			idleText := "does not matter"
			if l.IdleTimeoutSeconds > 0 && !l.Persistent {
				idleText = timeText(float64(int(l.IdleSeconds))) + " of " + timeText(l.IdleTimeoutSeconds)
			}
			a.facts([][2]string{{"ends", ends}, {"idle", idleText}})
			return nil
		}),
	}
}

// fromCreation is a time from now as the API counts it.
func (a *asker) fromCreation(ctx context.Context, id string, left float64) (float64, error) {
	m, err := a.Metrics(ctx, id) // by the daemon's clock
	return m.UptimeSeconds + left, err
}

const tagAbout = `
Without K=V it prints the tags. K= with nothing behind it, or K-, removes one.

  berm tag $SB job=42 owner=me old-
`

func tagVerb() verb {
	var asJSON bool
	fs := flags{{name: "json", help: "print the tags as one JSON object", set: toggle(&asJSON)}}
	return verb{
		name: "tag", summary: "show or change the tags of a sandbox", usage: "[--json] SANDBOX [K=V|K-]...", flags: func() flags { return fs }, about: tagAbout,
		run: ask("tag", fs, 1, -1, func(ctx context.Context, a *asker, args []string) error {
			ch, err := parseTags(args[1:])
			if err != nil {
				return err
			}
			id, err := a.sandbox(ctx, args[0])
			if err == nil && len(ch.Tags) > 0 {
				err = a.SetTags(ctx, id, ch)
			}
			if err != nil || len(ch.Tags) > 0 && !asJSON {
				return err
			}
			tags, err := a.Tags(ctx, id)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(tags)
			}
			for _, k := range slices.Sorted(maps.Keys(tags)) {
				fmt.Fprintln(a.Stdout, shownName(k+"="+tags[k]))
			}
			return nil
		}),
	}
}

func parseTags(args []string) (ch api.MetadataChange, err error) {
	ch.Tags = map[string]*string{}
	for _, arg := range args {
		k, v, set := strings.Cut(arg, "=")
		if !set && strings.HasSuffix(k, "-") {
			k = k[:len(k)-1]
		} else if !set {
			return ch, &fault{shellLine([]string{arg}), "is not K=V, nor K- to remove one", "berm tag SANDBOX " + shellLine([]string{arg}) + "=VALUE"}
		}
		if k == "" {
			return ch, &fault{shellLine([]string{arg}), "has no name", "berm help tag"}
		}
		if v == "" {
			ch.Tags[k] = nil
		} else {
			ch.Tags[k] = &v
		}
	}
	return ch, nil
}
