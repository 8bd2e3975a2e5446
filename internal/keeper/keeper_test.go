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
		{"another cap", Launch{ID: testID, Images: image, Limits: jail.Limits{Tasks: 1}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k.running = map[string]*sandbox{}
			_, err := k.admit(tt.q)
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
