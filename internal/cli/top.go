package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bermhq/berm/api"
)

const topAbout = `
q or Ctrl-C leaves. In the live table c, m, a and n sort by cpu, memory, age and
name. With --once, or where the output is no terminal, it prints one table and ends.
`

// minEvery is the shortest time between two looks.
const minEvery = 200 * time.Millisecond

func topVerb() verb {
	var once, asJSON bool
	every, by := 2.0, "cpu"
	fs := flags{
		{name: "once", help: "print one table and end", set: toggle(&once)},
		{name: "sort", value: "BY", help: "cpu, memory, age or name (default: cpu)", set: oneWord(&by, "cpu", "memory", "age", "name")},
		{name: "every", value: "TIME", help: "between two looks (default: 2s)", set: period("every", &every)},
		{name: "json", help: "print one JSON object and end", set: toggle(&asJSON)},
	}
	return verb{
		name: "top", summary: "watch what the sandboxes of your token's tenant use", usage: "[FLAG...]", flags: func() flags { return fs }, about: topAbout,
		run: ask("top", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			if once || asJSON || !isTerminal(a.Stdout) {
				t, err := a.Top(ctx)
				if err != nil {
					return err
				}
				sortTop(t.Sandboxes, by)
				if asJSON {
					return a.printed(t)
				}
				_, err = a.Stdout.Write(topText(t, 0, 0))
				return err
			}
			return a.liveTop(ctx, max(time.Duration(every*float64(time.Second)), minEvery), by)
		}),
	}
}

func sortTop(rows []api.TopRow, by string) {
	slices.SortStableFunc(rows, func(a, b api.TopRow) int {
		switch by {
		case "memory":
			return cmp.Compare(b.Metrics.MemoryBytes, a.Metrics.MemoryBytes)
		case "age":
			return cmp.Compare(b.Metrics.UptimeSeconds, a.Metrics.UptimeSeconds)
		case "name":
			return cmp.Compare(a.SandboxID, b.SandboxID)
		}
		return cmp.Compare(b.Metrics.HostCPUPercent, a.Metrics.HostCPUPercent)
	})
}

// topText is a look as text; rows and cols, if not 0, bound it.
func topText(t api.Top, rows, cols int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s   %d running, %s, %.0f%% cpu, %s of memory, %d made\n", clockText(t.Time), t.Running, counted(t.RunningExecs, "command"), t.CPUPercent, bytesText(t.MemoryBytes), t.Creates)
	if t.Degraded != "" {
		fmt.Fprintf(&b, "DEGRADED: %s\n", shownName(t.Degraded))
	}
	b.WriteByte('\n')
	w := &table{tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)}
	w.row("SANDBOX", "STATE", "CPU%", "MEMORY", "OF", "DISK", "TASKS", "RUNS", "AGE", "TAGS")
	for i, r := range t.Sandboxes {
		if rows > 0 && i >= rows-5 && i < len(t.Sandboxes)-1 {
			w.row(fmt.Sprintf("... and %d more", len(t.Sandboxes)-i))
			break
		}
		m := r.Metrics
		w.row(short(r.SandboxID), r.State, fmt.Sprintf("%.0f", m.HostCPUPercent), bytesText(m.MemoryBytes), bytesText(r.Limits.MemoryBytes),
			bytesText(m.DiskBytes), m.HostTasks, m.RunningExecs, span(time.Duration(m.UptimeSeconds*float64(time.Second))), tagText(r.Tags))
	}
	w.end()
	if cols <= 0 {
		return b.Bytes()
	}
	var out bytes.Buffer
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if r := []rune(line); len(r) > cols {
			line = string(r[:cols])
		}
		out.WriteString(line + "\n")
	}
	return out.Bytes()
}

// liveTop draws the table again and again until the user leaves.
func (a *asker) liveTop(ctx context.Context, every time.Duration, by string) error {
	restore := func() {}
	keys := make(chan byte, 8)
	if isTerminal(a.Stdin) {
		var err error
		if restore, err = makeRaw(a.Stdin); err != nil {
			return &fault{"top", err.Error(), "berm top --once"}
		}
		go func() {
			var b [1]byte
			for {
				if _, err := a.Stdin.Read(b[:]); err != nil {
					return
				}
				keys <- b[0]
			}
		}()
	}
	io.WriteString(a.Stdout, "\x1b[?1049h\x1b[?25l") // a screen of its own, no cursor
	back := func() {
		io.WriteString(a.Stdout, "\x1b[?25h\x1b[?1049l")
		restore()
	}
	defer back()
	ctx, in := a.interruptible(ctx, back, time.Second)
	defer in.stop()
	sizes, stop := watchSize(a.Stdout)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last api.Top
	draw := func() {
		size := windowSize(a.Stdout)
		sortTop(last.Sandboxes, by)
		text := strings.ReplaceAll(string(topText(last, int(size[0]), int(size[1]))), "\n", "\x1b[K\r\n")
		io.WriteString(a.Stdout, "\x1b[H"+text+"\x1b[J")
	}
	look := true
	for gone := time.Now(); ; {
		if look {
			t, err := a.Top(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				last, gone = t, time.Now()
			case time.Since(gone) > awayFor || last.Time == "":
				return err
			}
			draw()
		}
		look = false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			look = true
		case <-sizes:
			draw()
		case k := <-keys:
			switch k {
			case 'q', 3, 4:
				return nil
			case 'c', 'm', 'a', 'n':
				by = map[byte]string{'c': "cpu", 'm': "memory", 'a': "age", 'n': "name"}[k]
				draw()
			}
		}
	}
}
