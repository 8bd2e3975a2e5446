package api

import (
	"regexp"
	"strings"
	"testing"
)

func TestCodesHaveShapeAndStatus(t *testing.T) {
	shape := regexp.MustCompile(`^[a-z]+\.[a-z-]+$`)
	for _, c := range Codes() {
		if !shape.MatchString(c) {
			t.Errorf("code %q is not noun.reason", c)
		}
		if s := Status(c); s < 400 || s > 599 {
			t.Errorf("code %q has status %d", c, s)
		}
		if hints[c] == "" {
			t.Errorf("code %q says nothing about what to do", c)
		}
	}
	if Status("no.such") != 500 {
		t.Error("an unknown code must be a host failure")
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID(KindSandbox)
		if !ValidID(id) || id[0] != KindSandbox || seen[id] {
			t.Fatalf("bad id %q", id)
		}
		seen[id] = true
	}
	for _, bad := range []string{"", "s", strings.Repeat("a", 41), strings.Repeat("A", 27), "../" + strings.Repeat("a", 24)} {
		if ValidID(bad) {
			t.Errorf("ValidID(%q) = true", bad)
		}
	}
}

func TestFrameHeader(t *testing.T) {
	for _, tt := range []struct {
		kind byte
		size int
		ok   bool
	}{
		{FrameStdin, MaxFrame, true}, {FrameStdin, MaxFrame + 1, false},
		{FrameStdinClose, 0, true}, {FrameStdinClose, 1, false},
		{FrameResult, MaxResult, true}, {FrameResult, MaxResult + 1, false},
		{FrameSignal, 1, true}, {FrameLost, 8, true}, {FrameLost, 9, false}, {FrameResize, 5, false}, {0, 0, false}, {99, 1, false},
	} {
		var h [FrameHeader]byte
		PutFrameHeader(&h, tt.kind, tt.size)
		kind, size, ok := ParseFrameHeader(h)
		if kind != tt.kind || ok != tt.ok || ok && size != tt.size {
			t.Errorf("kind %d size %d: got %d %d %v", tt.kind, tt.size, kind, size, ok)
		}
	}
}
