package main

import (
	"errors"
	"testing"
)

func TestCounts(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, tt := range []struct {
		out                     string
		err                     error
		passed, failures, skips int
		reason                  string
	}{
		{"a\n3 passed, 0 failed, 0 skipped\n", nil, 3, 0, 0, ""},
		{"SKIPPED [2] x.py:3: no node\n3 passed, 0 failed, 2 skipped\n", nil, 3, 0, 2, "x.py:3: no node"},
		{"1 passed, 0 failed, 1 skipped", nil, 1, 0, 1, "told above"},
		{"3 passed, 2 failed, 0 skipped", failed, 3, 2, 0, ""},
		{"3 passed, 0 failed, 0 skipped", failed, 3, 1, 0, ""},
		{"all is well", nil, 0, 1, 0, ""},
		{"", failed, 0, 1, 0, ""},
	} {
		r := counts(tt.out, tt.err, []string{"x"})
		if r.Passed != tt.passed || len(r.Failures) != tt.failures || len(r.Skips) != tt.skips {
			t.Errorf("%q, %v: %+v", tt.out, tt.err, r)
		}
		if tt.skips > 0 && r.Skips[0].Reason != tt.reason {
			t.Errorf("%q: reason %q", tt.out, r.Skips[0].Reason)
		}
	}
}
