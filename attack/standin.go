package attack

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bermhq/berm/api"
)

// StandIns are the parts of a sandbox that a hostile program can be put in the
// place of: gVisor's own process, the agent in the guest, the gateway of a link.
var StandIns = []string{"sentry", "agent", "gateway"}

// part is what a stand-in stands in for.
func (c *Case) part() string {
	part, _, _ := strings.Cut(c.StandIn, " ")
	return part
}

// lacks are the walls whose lack counts in this case.
func (c *Case) lacks() []string {
	if len(c.Lacks) > 0 {
		return c.Lacks
	}
	return []string{c.Wall}
}

// command is what is executed: the program of the case, or the attempt of a
// stand-in. Both are told the case's number and places on the host.
func (c *Case) command(nonce, facts string) []string {
	if c.StandIn != "" {
		words := strings.Fields(c.StandIn)
		return append(append([]string{"standin"}, words[1:]...), nonce, facts)
	}
	program := c.Files[0].Name
	return []string{interpreters[path.Ext(program)], program, nonce, facts}
}

// session is one for the case alone.
func (r *run) session(ctx context.Context, c Case) (s *Session, unfit string, err error) {
	if c.Template != "" {
		return r.toolSession(ctx, c)
	}
	if c.User != "" {
		s, err = r.opt.OpenTemplate(ctx, rootName)
		return s, "", err
	}
	if c.StandIn == "" {
		s, err = r.opt.Open(ctx, c.wire())
		return s, "", err
	}
	if r.opt.StandIn == nil {
		return nil, "whoever attacks has no program to put in the place of a part", nil
	}
	s, err = r.opt.StandIn(ctx, c.part(), c.wire())
	return s, "", err
}

// images are the files that sandboxes start from, and their status.
func images(stateDir string) map[string]string {
	out := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(stateDir, "templates", "*.erofs"))
	for _, path := range found {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			out[path] = fmt.Sprint(st.Ino, st.Size, st.Mode, st.Uid, st.Mtim, st.Ctim)
		}
	}
	return out
}

// changed are those that are no longer as they were. Those that came or went are
// the store's affair.
func changed(before, after map[string]string) (out []string) {
	for path, was := range before {
		if is, there := after[path]; there && is != was {
			out = append(out, "the image "+filepath.Base(path)+" was changed")
		}
	}
	return out
}

// beside makes a sandbox beside that of a stand-in: whatever that does, this one
// is served. "" where there is none.
func (a *attempt) beside(ctx context.Context) (id string, err error) {
	if a.c.StandIn == "" {
		return "", nil
	}
	sb, err := a.s.Client.Create(ctx, api.CreateRequest{Template: a.s.Template, Isolation: a.isolation})
	if err != nil {
		return "", fmt.Errorf("create one beside it: %w", err)
	}
	return sb.SandboxID, nil
}

// served says why a sandbox beside is no longer served, and ends it.
func (a *attempt) served(ctx context.Context, id string) string {
	if id == "" {
		return ""
	}
	why := a.ping(ctx, id)
	if _, err := a.s.Client.Delete(ctx, id); err != nil && why == "" {
		why = err.Error()
	}
	return why
}

// boasts are figures of a stand-in's sandbox that nothing can have reached: what a
// guest says of itself is bounded by what the host knows.
func boasts(c Case, end api.EndReport) (out []string) {
	l := c.Limits.WithDefaults()
	for _, f := range []struct {
		what       string
		said, most int64
	}{
		{"bytes of memory", end.Usage.MemoryPeakBytes, l.MemoryBytes}, {"processes", end.Usage.PidsPeak, 4*l.Pids + 128},
		{"bytes of disk", end.Usage.DiskPeakBytes, 8 * l.DiskBytes},
	} {
		if c.StandIn != "" && f.most > 0 && f.said > f.most {
			out = append(out, fmt.Sprintf("Berm believes that it had %d %s", f.said, f.what))
		}
	}
	return out
}
