package bench

import (
	"context"
	"net"
	"os/exec"
	"testing"
)

// TestEgressClient: the client and the server of the benchmark understand each
// other, and a transfer that breaks off is an error and no figure.
func TestEgressClient(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveBulk(l)
	n := &network{addr: address(l), run: func(ctx context.Context, args ...string) ([]byte, error) {
		return output(exec.CommandContext(ctx, "python3", append([]string{"-c", egressClient}, args...)...))
	}}
	if v, err := n.times(t.Context(), "get", "3", "3000000"); err != nil || len(v) != 1 {
		t.Errorf("get: %v, %v", v, err)
	}
	if v, err := n.times(t.Context(), "put", "3", "3000000"); err != nil || len(v) != 1 {
		t.Errorf("put: %v, %v", v, err)
	}
	if v, err := n.times(t.Context(), "conns", "5"); err != nil || len(v) != 5 {
		t.Errorf("connections: %v, %v", v, err)
	}
	n.addr.port = "1" // nobody listens there
	if v, err := n.times(t.Context(), "conns", "1"); err == nil {
		t.Errorf("nobody answered, in %v", v)
	}
}

// TestEgressInterrupted: rounds that every network has finished remain, and
// nothing of the one in which it ended.
func TestEgressInterrupted(t *testing.T) {
	for _, tt := range []struct{ calls, done int }{{1, 0}, {9, 0}, {10, 0}, {11, 0}, {19, 0}, {20, 1}, {29, 1}, {30, 2}, {39, 2}} {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		run := func(ctx context.Context, args ...string) ([]byte, error) {
			if calls++; calls > tt.calls {
				cancel()
				return nil, ctx.Err()
			}
			return []byte("[1]"), nil
		}
		all := []*network{{name: "a", run: run}, {name: "b", run: run}}
		done, err := rounds(ctx, Options{Rounds: 3}, all)
		if done != tt.done || err == nil {
			t.Errorf("after %d calls: %d rounds, %v, want %d", tt.calls, done, err, tt.done)
		}
		for _, n := range all {
			for _, l := range [][]float64{n.in, n.out, n.manyIn, n.manyOut, n.conn} {
				if len(l) != tt.done {
					t.Errorf("after %d calls: %s has %d figures, want %d", tt.calls, n.name, len(l), tt.done)
				}
			}
		}
	}
}

// TestEgressRows: ours is held against each of the others, round by round.
func TestEgressRows(t *testing.T) {
	plain := &network{name: "plain", in: []float64{100, 200}, manyIn: []float64{100, 100}, conn: []float64{1, 2}}
	ours := &network{name: "berm", in: []float64{50, 100}, manyIn: []float64{25, 25}, conn: []float64{2, 3}}
	got := map[string]Row{}
	for _, r := range egressRows(ours, []*network{plain, ours}, gateways{"idle gateway", []float64{12}}) {
		got[r.Name+"|"+r.Baseline] = r
	}
	for name, want := range map[string]float64{
		"berm, one stream in|plain, one stream in": 0.5, "berm, 50 streams in|plain, 50 streams in": 0.25, "berm, connection|plain, connection": 1.75,
	} {
		if r := got[name]; r.RatioP50 != want {
			t.Errorf("%s: %v, want %v", name, r.RatioP50, want)
		}
	}
	if r := got["added to a connection|"]; r.P50 != 1 || r.N != 2 {
		t.Errorf("%+v", r)
	}
	if r := got["idle gateway|"]; r.P50 != 12 {
		t.Errorf("%+v", r)
	}
}
