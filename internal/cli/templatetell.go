package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// A teller says how far the making of a template is: on a terminal as one line
// that changes, elsewhere as a line now and then.
type teller struct {
	env  *Env
	line progress

	mu    sync.Mutex
	phase string
	at    time.Time // of the last line
	said  string    // the last line
	told  time.Time // when
}

// Where there is no terminal: a phase is told of when it has lasted that long,
// and again after so long.
const (
	sparseFirst = 2 * time.Second
	sparseAgain = 10 * time.Second
	sparseStill = time.Minute // where nothing has moved
)

func (env *Env) teller() *teller {
	t := &teller{env: env, at: time.Now()}
	if isTerminal(env.Stderr) {
		t.line.w = env.Stderr
	}
	return t
}

// phases is what the phases are called for people.
var phases = map[string]string{
	"resolve": "looking it up", "download": "downloading", "verify": "checking", "unpack": "unpacking", "pack": "writing the image", "step": "step",
	"export": "writing the archive", "index": "reading the package index", "digest": "naming the image", "upload": "reading", "queue": "waiting for others",
}

// tell says how far it is. It is cheap, however often it is called.
func (t *teller) tell(p api.TemplateProgress) {
	name := p.Phase
	if s, ok := phases[name]; ok {
		name = s
	}
	if t.line.w != nil {
		t.line.detail(name, p.Item, p.Done, p.Total)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Phase != t.phase {
		t.phase, t.at = p.Phase, time.Now().Add(sparseFirst-sparseAgain)
		return
	}
	if time.Since(t.at) < sparseAgain {
		return
	}
	t.at = time.Now()
	s := name
	if p.Item != "" {
		s += " " + clipped(p.Item, maxItem)
	}
	switch {
	case p.Total > 0:
		s += fmt.Sprintf(": %d%%", min(max(p.Done, 0), p.Total)*100/p.Total)
	case p.Done > 0:
		s += ": " + bytesText(p.Done)
	}
	if s == t.said && time.Since(t.told) < sparseStill {
		return
	}
	t.said, t.told = s, t.at
	t.env.note("%s", s)
}

// say writes a line that stays.
func (t *teller) say(s string) {
	if t.line.w != nil {
		t.line.say(oneLine(s))
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.env.Stderr, oneLine(s))
}

func (t *teller) end() { t.line.phase("") }

// built waits for a build that was started, and says how far it is; lines says
// that its lines are shown. When ctx ends first, the build is ended too.
func (a *asker) built(ctx context.Context, b api.Build, lines bool) (api.Template, error) {
	t := a.teller()
	defer t.end()
	var wg sync.WaitGroup
	follow, stop := context.WithCancel(ctx)
	id := b.ID
	if lines {
		wg.Go(func() {
			if err := a.followed(follow, id, func(line string) {
				if !strings.HasPrefix(line, "failed: ") { // the verb itself says it, with what to do
					t.say(line)
				}
			}); err != nil && follow.Err() == nil {
				a.note("the lines of the build are lost: %v", err)
			}
		})
	}
	b, err := a.WaitBuild(ctx, id, func(b api.Build) {
		if b.Progress != nil {
			t.tell(*b.Progress)
		}
	})
	if err == nil || ctx.Err() == nil { // what it said last is on its way
		last := time.AfterFunc(5*time.Second, stop)
		wg.Wait()
		last.Stop()
	}
	stop()
	wg.Wait()
	t.end()
	if ctx.Err() != nil {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if cerr := a.CancelBuild(short, id); cerr != nil {
			a.note("the build may go on: %v", cerr)
		}
		return api.Template{}, context.Cause(ctx)
	}
	if err != nil {
		return api.Template{}, err
	}
	if b.Template == nil {
		return a.Template(ctx, b.Name)
	}
	return *b.Template, nil
}

// followed gives each line of a build to f, once, over breaks of the way.
func (a *asker) followed(ctx context.Context, id string, f func(string)) error {
	told := 0
	for try := 0; ; try++ {
		n := 0
		err := a.FollowBuild(ctx, id, func(line string) error {
			if n++; n > told {
				told = n
				f(line)
			}
			return nil
		})
		if err == nil || errors.Is(err, io.EOF) || !client.Broken(err) || try == 3 || ctx.Err() != nil {
			return err
		}
	}
}
