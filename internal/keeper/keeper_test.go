package keeper

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

func TestFill(t *testing.T) {
	got := fill([]string{"--a={image0}", "{spec}", "{spec", "plain"}, map[string]int{"image0": 4, "spec": 3})
	if want := []string{"--a=4", "3", "{spec", "plain"}; !slices.Equal(got, want) {
		t.Errorf("fill = %q, want %q", got, want)
	}
}

func TestAdmit(t *testing.T) {
	k := &Keeper{running: map[string]*sandbox{}, missing: map[string]error{"memory": errors.New("not mounted")}}
	image := []string{strings.Repeat("a", 26)}
	for _, tt := range []struct {
		name string
		q    Launch
		want string // "" is admitted
	}{
		{"whole", Launch{ID: testID, Images: image}, ""},
		{"id with a path", Launch{ID: "../../../../../../etc/passwd", Images: image}, "not a sandbox id"},
		{"image with a path", Launch{ID: testID, Images: []string{"../secret"}}, "not an image name"},
		{"no image", Launch{ID: testID}, "0 images"},
		{"a cap that nothing holds", Launch{ID: testID, Images: image, Limits: jail.Limits{MemoryBytes: 1}}, "cannot enforce"},
		{"another program", Launch{ID: testID, Images: image, Args: []string{"sh", "-c", "id"}}, "not those of a sandbox"},
		{"another cap", Launch{ID: testID, Images: image, Limits: jail.Limits{Tasks: 1}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k.running = map[string]*sandbox{}
			if tt.q.Args == nil {
				tt.q.Args = []string{"runsc-sandbox", "boot"}
			}
			_, err := k.admit(tt.q, nil)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("admit = %v, want %q", err, tt.want)
			}
			var r *Refusal
			if tt.want == "cannot enforce" && (!errors.As(err, &r) || !strings.Contains(r.Hint, "--memory=unlimited")) {
				t.Errorf("refusal %v does not say how to go on", err)
			}
		})
	}
}

// Who is root already is not told to become root.
func TestWayOut(t *testing.T) {
	v2 := &jail.Hierarchy{V2: true}
	for _, tt := range []struct {
		name string
		k    *Keeper
		root bool
		want string
	}{
		{"a user, v1", &Keeper{}, false, "sudo berm"},
		{"a user, v2, without a manager", &Keeper{groups: v2}, false, "sudo berm"},
		{"root where none is mounted", &Keeper{missing: map[string]error{"memory": jail.ErrNotMounted}}, true, "mount -t cgroup2"},
		{"root, read-only", &Keeper{missing: map[string]error{"memory": &os.PathError{Op: "x", Path: "y", Err: unix.EROFS}}}, true, "mount -o remount,rw"},
		{"root, something else", &Keeper{groups: v2, missing: map[string]error{"memory": errors.New("no")}}, true, "systemd-run --scope -p Delegate=yes"},
	} {
		if got := tt.k.wayOut(tt.root); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What parses hostile bytes cannot ask for more than its caller wanted.
func TestCeiling(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	in := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	c := &Ceiling{Limits: jail.Limits{MemoryBytes: 100, Tasks: 10, CPUs: 1}, Sandboxes: 1, Life: time.Minute}
	good := Launch{Limits: jail.Limits{MemoryBytes: 100, Tasks: 10, CPUs: 1}, DeadlineMS: in(time.Minute)}
	for _, tt := range []struct {
		name string
		bad  func(q *Launch)
	}{
		{"", func(*Launch) {}},
		{"memory", func(q *Launch) { q.Limits.MemoryBytes = 101 }},
		{"memory", func(q *Launch) { q.Limits.MemoryBytes = 0 }},
		{"memory", func(q *Launch) { q.Limits.MemoryBytes = -1 }},
		{"tasks", func(q *Launch) { q.Limits.Tasks = 11 }},
		{"tasks", func(q *Launch) { q.Limits.Tasks = 0 }},
		{"cpus", func(q *Launch) { q.Limits.CPUs = 2 }},
		{"deadline", func(q *Launch) { q.DeadlineMS = in(2 * time.Minute) }},
		{"deadline", func(q *Launch) { q.DeadlineMS = 0 }},
		{"link", func(q *Launch) { q.Link = true }},
	} {
		q := good
		tt.bad(&q)
		err := c.admits(q, now)
		if (err == nil) != (tt.name == "") || err != nil && !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%s: %+v: %v", tt.name, q, err)
		}
	}
	k := &Keeper{running: map[string]*sandbox{}, cfg: Config{Ceiling: c}}
	q := Launch{ID: testID, Images: []string{strings.Repeat("a", 26)}, Args: []string{"runsc-sandbox"}, Limits: good.Limits,
		DeadlineMS: time.Now().Add(time.Second).UnixMilli()}
	if _, err := k.admit(q, nil); err != nil {
		t.Fatal(err)
	}
	q.ID = "z" + testID[1:]
	if _, err := k.admit(q, nil); err == nil {
		t.Error("a second sandbox was admitted under a ceiling of one")
	}
	if err := (*Ceiling)(nil).admits(Launch{}, now); err != nil {
		t.Errorf("no ceiling: %v", err)
	}
}

func TestDeadline(t *testing.T) {
	at := func(s *sandbox) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.cause
	}
	s := &sandbox{last: time.Now().Add(time.Hour).UnixMilli()}
	s.setDeadline(time.Now().Add(-time.Second).UnixMilli())
	time.Sleep(50 * time.Millisecond)
	if at(s) != CauseDeadline {
		t.Errorf("past its deadline: %q", at(s))
	}
	s = &sandbox{last: time.Now().Add(30 * time.Millisecond).UnixMilli()}
	s.setDeadline(time.Now().Add(time.Hour).UnixMilli())
	time.Sleep(100 * time.Millisecond)
	if at(s) != CauseDeadline {
		t.Error("a deadline was moved past the last one")
	}
	s = &sandbox{}
	s.setDeadline(time.Now().Add(30 * time.Millisecond).UnixMilli())
	s.setDeadline(time.Now().Add(time.Hour).UnixMilli())
	time.Sleep(100 * time.Millisecond)
	if at(s) != "" {
		t.Error("a deadline that was moved away came all the same")
	}
	s.stopTimer()
}

// A client whose keeper goes away gets an answer, not silence.
func TestClientLosesKeeper(t *testing.T) {
	a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := jail.Conn(a)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(conn)
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		spec, _ := os.Open(os.DevNull)
		defer spec.Close()
		_, err := c.Launch(context.Background(), Launch{ID: testID}, spec)
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	b.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a launch succeeded without a keeper")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the launch hangs")
	}
	if _, err := c.Facts(context.Background(), false); err == nil {
		t.Error("facts from a keeper that is gone")
	}
}

// A launch whose answer cannot be used does not leave its sandbox running.
func TestClientAbandons(t *testing.T) {
	a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := jail.Conn(a)
	cb, _ := jail.Conn(b)
	defer cb.Close()
	c := NewClient(ca)
	defer c.Close()
	asked := make(chan string, 4)
	go func() {
		buf := make([]byte, maxMessage)
		for {
			var q request
			files, err := receive(cb, buf, &q)
			if err != nil {
				return
			}
			closeAll(files)
			asked <- q.Op + " " + q.ID
			send(cb, reply{Seq: q.Seq, PID: 1}) // to a launch: without its descriptors
		}
	}()
	spec, _ := os.Open(os.DevNull)
	defer spec.Close()
	if _, err := c.Launch(t.Context(), Launch{ID: testID}, spec); err == nil {
		t.Error("an answer without descriptors was taken")
	}
	if first, second := <-asked, <-asked; first != "launch " || second != "stop "+testID {
		t.Errorf("asked %q, then %q", first, second)
	}
}

// What a keeper sends is checked, too.
func TestClientHearsNonsense(t *testing.T) {
	for _, msg := range []string{"{", `{"seq":1}`, `{"exited":{"id":"x"}}`, strings.Repeat("x", 1000)} {
		a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
		if err != nil {
			t.Fatal(err)
		}
		conn, _ := jail.Conn(a)
		c := NewClient(conn)
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		b.WriteString(msg)
		spec, _ := os.Open(os.DevNull)
		if r, err := c.Launch(ctx, Launch{ID: testID}, spec); err == nil {
			t.Errorf("%q: launched %+v", msg, r)
		}
		spec.Close()
		cancel()
		c.Close()
		b.Close()
	}
}
