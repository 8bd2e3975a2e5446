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

// plays puts a guest that f plays behind the next sandboxes.
func (r *rig) plays(f func(*testkit.Script)) {
	r.flaky.Conn = func(c net.Conn) net.Conn {
		c.Close()
		return testkit.Scripted(f)
	}
}

// replies ends a stream with x.
func replies(s *testkit.Script, stream uint32, x guest.Exit) {
	rep := guest.Reply{Body: x.Append(nil)}
	s.Frame(stream, guest.KindReply, rep.Append(nil))
}

// What a guest says of its ending counts as far as the host did not see
// otherwise.
func TestCredit(t *testing.T) {
	const mb = 1 << 20
	limits := api.Limits{MemoryBytes: 64 * mb, DiskBytes: 64 * mb, Pids: 8}
	open := limits
	open.MemoryBytes, open.Pids = api.Unlimited, api.Unlimited
	long := 100 * time.Millisecond // many samples
	for _, tt := range []struct {
		name   string
		limits api.Limits
		usage  backend.Usage
		exit   guest.Exit
		brief  bool
		ending string
		code   int
		caps   []string
	}{
		{"memory, and it was", limits, backend.Usage{MemoryPeak: 60 * mb}, guest.Exit{Signal: 9, EndedBy: "memory"}, false, api.EndMemory, 137, []string{"memory"}},
		{"memory, and it was not", limits, backend.Usage{MemoryPeak: 20 * mb}, guest.Exit{Signal: 9, EndedBy: "memory", Caps: []string{"memory"}}, false, api.EndSignal, 137, []string{}},
		{"memory, soon, and it was not", limits, backend.Usage{MemoryPeak: 20 * mb}, guest.Exit{Signal: 9, EndedBy: "memory", Caps: []string{"memory"}}, true, api.EndSignal, 137, []string{}},
		{"memory, no peak kept, half seen", limits, backend.Usage{MemoryBytes: 33 * mb}, guest.Exit{Signal: 9, EndedBy: "memory"}, false, api.EndMemory, 137, []string{"memory"}},
		{"memory, no peak kept, little seen", limits, backend.Usage{MemoryBytes: 3 * mb}, guest.Exit{Signal: 9, EndedBy: "memory"}, false, api.EndSignal, 137, []string{}},
		{"memory without a cap", open, backend.Usage{MemoryPeak: 60 * mb}, guest.Exit{Signal: 9, EndedBy: "memory"}, false, api.EndSignal, 137, []string{}},
		{"memory, and nothing is measured", limits, backend.Usage{}, guest.Exit{Signal: 9, EndedBy: "memory"}, false, api.EndMemory, 137, []string{"memory"}},
		{"a cap alone", limits, backend.Usage{MemoryPeak: 60 * mb}, guest.Exit{Caps: []string{"memory"}}, false, api.EndExit, 0, []string{"memory"}},
		{"killed", limits, backend.Usage{}, guest.Exit{Signal: 9, EndedBy: "killed"}, false, api.EndSignal, 137, []string{}},
		{"processes", limits, backend.Usage{Tasks: 50}, guest.Exit{Signal: 9, EndedBy: "processes", Caps: []string{"processes"}}, false, api.EndProcesses, 123, []string{"processes"}},
		{"processes without a cap", open, backend.Usage{Tasks: 50}, guest.Exit{Signal: 9, EndedBy: "processes", Caps: []string{"processes"}}, false, api.EndSignal, 137, []string{}},
		{"disk, half seen", limits, backend.Usage{DiskBytes: 33 * mb}, guest.Exit{Code: 1, Caps: []string{"disk"}}, false, api.EndExit, 1, []string{"disk"}},
		{"disk, little seen", limits, backend.Usage{DiskBytes: 3 * mb}, guest.Exit{Code: 1, Caps: []string{"disk"}}, false, api.EndExit, 1, []string{}},
		{"disk, deleted between samples", limits, backend.Usage{DiskBytes: 3 * mb, MemoryPeak: 40 * mb}, guest.Exit{Code: 1, Caps: []string{"disk"}}, false, api.EndExit, 1, []string{"disk"}},
		{"disk, and it was not", limits, backend.Usage{DiskBytes: 3 * mb, MemoryPeak: 20 * mb}, guest.Exit{Code: 1, Caps: []string{"disk"}}, false, api.EndExit, 1, []string{}},
		{"disk, too soon to see", limits, backend.Usage{DiskBytes: 3 * mb}, guest.Exit{Code: 1, Caps: []string{"disk"}}, true, api.EndExit, 1, []string{"disk"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := quick
			if tt.brief {
				opt.Sample = time.Minute
			}
			r := newRig(t, opt)
			r.flaky.Usage = func() (backend.Usage, error) { return tt.usage, nil }
			r.plays(func(s *testkit.Script) {
				s.Greet()
				stream := s.Open()
				if !tt.brief {
					time.Sleep(long)
				}
				tt.exit.PidsPeak = 5000
				replies(s, stream, tt.exit)
			})
			id := r.create(t, tt.limits)
			res, _ := r.exec(t, id, "lie")
			if res.Ending != tt.ending || res.ExitCode != tt.code || !slices.Equal(res.CapsHit, tt.caps) {
				t.Errorf("exec = %+v", res)
			}
			end, err := r.Delete(t.Context(), id)
			if want := max(tt.limits.Pids, 5000); err != nil || tt.limits.Pids > 0 && end.Usage.PidsPeak != tt.limits.Pids || tt.limits.Pids < 0 && end.Usage.PidsPeak != want {
				t.Errorf("end = %+v, %v", end, err)
			}
		})
	}
}
