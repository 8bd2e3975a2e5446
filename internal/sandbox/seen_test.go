package sandbox_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/testkit"
)

// A sandbox that dies as a whole takes its exits with it; what its guest had
// seen until then counts all the same, but the host says how it ended.
func TestSeenBeforeTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name, cause string
		seen        []guest.Exit
		ending      string
		caps        []string
		pids        int64
	}{
		{"tasks, then memory", api.CapMemory, []guest.Exit{{PidsPeak: 3}, {Caps: []string{"processes"}, PidsPeak: 16}},
			api.EndMemory, []string{"memory", "processes"}, 16},
		{"only peaks", "stopped", []guest.Exit{{PidsPeak: 3, MemoryPeak: 1 << 20}}, api.EndKilled, []string{}, 3},
		{"a lie", "stopped", []guest.Exit{{Caps: []string{"memory"}, PidsPeak: 1 << 60}}, api.EndKilled, []string{}, 128},
		{"nothing", api.CapMemory, nil, api.EndMemory, []string{"memory"}, 128},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, quick)
			r.flaky.Usage = func() (backend.Usage, error) { return backend.Usage{Tasks: 277, MemoryPeak: 1 << 20}, nil }
			said, crashed := make(chan bool), make(chan bool)
			r.flaky.Conn = func(c net.Conn) net.Conn {
				c.Close()
				return testkit.Scripted(func(s *testkit.Script) {
					s.Greet()
					stream := s.Open()
					for _, e := range tt.seen {
						s.Frame(stream, guest.KindSeen, e.Append(nil))
					}
					s.Frame(stream, guest.KindData, []byte("."))
					close(said)
					<-crashed // or its end would be nobody's for a while, and a busy machine makes that long
					s.Close()
				})
			}
			id := r.create(t, api.Limits{})
			go func() { <-said; r.mem.Crash(id, tt.cause); close(crashed) }()
			res, out := r.exec(t, id, "bomb")
			if res.Ending != tt.ending || !slices.Equal(res.CapsHit, tt.caps) || out != "." {
				t.Errorf("exec = %+v, %q", res, out)
			}
			end, err := r.Delete(t.Context(), id)
			if err != nil || end.Ending != tt.ending || !slices.Equal(end.CapsHit, tt.caps) || end.Usage.PidsPeak != tt.pids {
				t.Errorf("end = %+v, %v", end, err)
			}
		})
	}
}

// The same with an honest agent.
func TestSeenOfAnAgent(t *testing.T) {
	r := newRig(t, quick)
	id := r.create(t, api.Limits{Pids: 8})
	time.AfterFunc(100*time.Millisecond, func() { r.mem.Crash(id, api.CapMemory) })
	res, _ := r.exec(t, id, "forks", "100", "60")
	if res.Ending != api.EndMemory || !slices.Equal(res.CapsHit, []string{"memory", "processes"}) {
		t.Errorf("exec = %+v", res)
	}
	if end, err := r.Delete(t.Context(), id); err != nil || end.Usage.PidsPeak != 8 {
		t.Errorf("end = %+v, %v", end, err)
	}
}
