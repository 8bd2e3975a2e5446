package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

const failing = `{"Action":"run","Package":"p/q","Test":"TestA"}
{"Action":"output","Package":"p/q","Test":"TestA","Output":"    a_test.go:1: %s\n"}
{"Action":"fail","Package":"p/q","Test":"TestA"}
{"Action":"fail","Package":"p/q"}
`

func TestAgain(t *testing.T) {
	for _, tt := range []struct {
		name, said string
		second     Result
		err        error
		asked      bool
		unsteady   int
	}{
		{"passes each time", "timed out", Result{Passed: 3}, nil, true, 1},
		{"fails again", "timed out", Result{Passed: 2, Failures: []string{"p/q TestA"}}, nil, true, 0},
		{"did not run", "timed out", Result{}, nil, true, 0},
		{"could not be run", "timed out", Result{Passed: 3}, fmt.Errorf("no go"), true, 0},
		{"a race is proof", "testing.go:1: race detected during execution of test", Result{Passed: 3}, nil, false, 0},
		{"a panic is proof", "panic: nil map", Result{Passed: 3}, nil, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := read(strings.NewReader(fmt.Sprintf(failing, tt.said)), io.Discard)
			if len(res.Failures) != 1 {
				t.Fatalf("failures %q", res.Failures)
			}
			var asked []string
			again(&res, []string{"go", "test", "-json", "-timeout", "10m", "p/q", "p/r"}, io.Discard, func(args []string, _ io.Writer) (Result, error) {
				asked = args
				return tt.second, tt.err
			})
			if got := strings.Join(asked, " "); tt.asked && got != "go test -json -timeout 10m -count=3 -run ^TestA$ p/q" || !tt.asked && got != "" {
				t.Errorf("asked %q", got)
			}
			if len(res.Unsteady) != tt.unsteady || len(res.Failures) != 1-tt.unsteady || res.Passed != tt.unsteady {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestManyUnsteady: a few are named, more are a failure.
func TestManyUnsteady(t *testing.T) {
	for n, want := range map[int]bool{0: true, maxUnsteady: true, maxUnsteady + 1: false} {
		file := filepath.Join(t.TempDir(), "tally")
		r := Result{Passed: 10}
		for i := range n {
			r.Unsteady = append(r.Unsteady, fmt.Sprintf("p TestN%d", i))
		}
		if err := r.save(file); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		ok, err := printSum(&out, file)
		if err != nil || ok != want || strings.Count(out.String(), "unsteady: p TestN") != n {
			t.Errorf("%d unsteady: ok %v, %v\n%s", n, ok, err, out.String())
		}
	}
}
