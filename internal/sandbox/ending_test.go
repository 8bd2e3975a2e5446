package sandbox

import (
	"slices"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

func TestTold(t *testing.T) {
	for _, tt := range []struct {
		name   string
		x      guest.Exit
		ending string
		code   int
	}{
		{"own", guest.Exit{Code: 3}, api.EndExit, 3},
		{"own 124 is no timeout", guest.Exit{Code: 124}, api.EndExit, 124},
		{"own 137 is no kill", guest.Exit{Code: 137}, api.EndExit, 137},
		{"out of range", guest.Exit{Code: 1 << 20}, api.EndExit, 0},
		{"signal", guest.Exit{Signal: 15}, api.EndSignal, 143},
		{"odd signal", guest.Exit{Signal: 1 << 10}, api.EndSignal, 128},
		{"memory", guest.Exit{Signal: 9, EndedBy: "memory"}, api.EndMemory, 137},
		{"processes", guest.Exit{Signal: 9, EndedBy: "processes"}, api.EndProcesses, 123},
		{"unknown word", guest.Exit{Code: 1, EndedBy: "host-failure"}, api.EndExit, 1},
		{"not found", guest.Exit{NotStarted: "no such file", Errno: 2}, api.EndExit, 127},
		{"not executable", guest.Exit{NotStarted: "permission denied", Errno: 13}, api.EndExit, 126},
		{"errno alone", guest.Exit{Errno: 8}, api.EndExit, 126},
	} {
		ending, notStarted := told(tt.x)
		if code := exitCode(ending, tt.x); ending != tt.ending || code != tt.code {
			t.Errorf("%s: %s %d, want %s %d", tt.name, ending, code, tt.ending, tt.code)
		}
		if (notStarted != "") != (tt.x.Errno != 0) {
			t.Errorf("%s: not started: %q", tt.name, notStarted)
		}
	}
}

func TestCapSet(t *testing.T) {
	var c capSet
	c.add("disk", "memory", "root", "", "disk")
	if got := c.list(); !slices.Equal(got, []string{"memory", "disk"}) {
		t.Errorf("list = %q", got)
	}
	var none capSet
	if got := none.list(); got == nil || len(got) != 0 {
		t.Errorf("list = %#v", got)
	}
}

func TestQueue(t *testing.T) {
	q := newQueue(4)
	if !q.put(chunk{data: []byte("abcdef")}) { // larger than the bound, but alone
		t.Fatal("put")
	}
	done := make(chan bool)
	go func() { done <- q.put(chunk{data: []byte("g")}) }()
	select {
	case <-done:
		t.Fatal("put did not wait")
	default:
	}
	if c, ok := q.get(); !ok || string(c.data) != "abcdef" {
		t.Fatal("get")
	}
	if !<-done {
		t.Fatal("put after room")
	}
	q.close()
	if q.put(chunk{data: []byte("h")}) {
		t.Error("put after close")
	}
	if c, ok := q.get(); !ok || string(c.data) != "g" {
		t.Error("get after close")
	}
	if _, ok := q.get(); ok {
		t.Error("get of nothing")
	}
	q = newQueue(1)
	q.put(chunk{data: []byte("x")})
	go func() { done <- q.put(chunk{data: []byte("y")}) }()
	q.kill()
	if <-done {
		t.Error("put into a dead queue")
	}
	if _, ok := q.get(); ok {
		t.Error("get from a dead queue")
	}
}
