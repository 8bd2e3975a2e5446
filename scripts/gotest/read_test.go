package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	const p = `"Package":"github.com/bermhq/berm/api"`
	in := strings.Join([]string{
		`{"Action":"pass",` + p + `,"Test":"TestA"}`,
		`{"Action":"output",` + p + `,"Test":"TestB/x","Output":"    b_test.go:7: got 1\n"}`,
		`{"Action":"fail",` + p + `,"Test":"TestB/x"}`,
		`{"Action":"fail",` + p + `,"Test":"TestB"}`,
		`{"Action":"output",` + p + `,"Test":"TestC","Output":"    c_test.go:9: needs root: run it as root\n"}`,
		`{"Action":"output",` + p + `,"Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}`,
		`{"Action":"skip",` + p + `,"Test":"TestC"}`,
		`{"Action":"fail",` + p + `}`,
		`{"Action":"build-output","ImportPath":"github.com/bermhq/berm/x","Output":"x.go:1: no such thing\n"}`,
		`{"Action":"fail","Package":"github.com/bermhq/berm/x","FailedBuild":"github.com/bermhq/berm/x"}`,
		`{"Action":"run","Package":"github.com/bermhq/berm/y","Test":"TestHangs"}`,
		`{"Action":"output","Package":"github.com/bermhq/berm/y","Test":"TestHangs","Output":"panic: test timed out\n"}`,
		`{"Action":"fail","Package":"github.com/bermhq/berm/y"}`,
		`a message`,
	}, "\n")
	var out bytes.Buffer
	res := read(strings.NewReader(in), &out)
	if res.Passed != 1 {
		t.Errorf("passed: %d, want 1", res.Passed)
	}
	if got := strings.Join(res.Failures, ", "); got != "api TestB/x, x, y TestHangs (did not end)" {
		t.Errorf("failures: %q", got)
	}
	if len(res.Skips) != 1 || res.Skips[0] != (Skip{"api TestC", "needs root: run it as root"}) {
		t.Errorf("skips: %v", res.Skips)
	}
	for _, want := range []string{"got 1", "no such thing", "timed out", "a message"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
