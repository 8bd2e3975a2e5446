package server_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/testkit"
)

// walled is a backend that looks at its host.
type walled struct {
	*mem.Backend
	asked atomic.Int32
}

func (w *walled) Walls(context.Context) ([]api.Wall, error) {
	w.asked.Add(1)
	time.Sleep(20 * time.Millisecond) // so that they meet
	return []api.Wall{{Name: "memory", Reason: "mkdir /sys/fs/cgroup/x: permission denied", Fix: "chmod /sys/fs/cgroup"}, {Name: "time", Holds: true, Reason: "a clock"}}, nil
}

func (w *walled) Leaks(context.Context) ([]api.Leak, error) { return nil, nil }

// Many who ask what the host offers make it try once, and only an operator of
// the host is told about its paths.
func TestCheckup(t *testing.T) {
	be := &walled{Backend: mem.New(mem.Options{Boundary: api.BoundaryUserKernel, Dir: t.TempDir()})}
	eng := sandbox.New([]backend.Backend{be}, sandbox.Options{})
	defer eng.Close(context.Background())
	e := &edge{t, testkit.Serve(t, server.New(eng, server.Options{Auth: newFakeAuth(), Store: newFakeStore(), Hosts: []string{"berm"}}))}
	var wg sync.WaitGroup
	for _, who := range []string{agent, operator, admin, otherAgent, otherOperator, agent, operator} {
		wg.Go(func() {
			status, out := e.do("GET", "/v1/doctor", "", "Authorization", "Bearer "+who)
			told := strings.Contains(out, "/sys/fs/cgroup")
			if status != 200 || !strings.Contains(out, "a clock") || told != (who == operator || who == admin) {
				t.Errorf("%s: %d %s", who, status, out)
			}
		})
	}
	wg.Wait()
	if n := be.asked.Load(); n != 1 {
		t.Errorf("the host was looked at %d times", n)
	}
}
