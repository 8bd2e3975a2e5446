package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A test of real processes can fail on a machine that others load, and one that
// hides a defect can fail just as rarely. Such a test is run again, by itself:
// if it passes each time, it is unsteady. It is named in the closing lines, so
// that somebody looks into it, and more than a few of them are a failure. A
// race, a panic and a test without an end are proof of a defect and never asked
// again.
const (
	tries       = 3
	maxUnsteady = 2
)

type suspect struct{ pkg, test, name string }

// damning says that what a test printed proves a defect.
func damning(output []string) bool {
	text := strings.Join(output, "")
	return strings.Contains(text, "DATA RACE") || strings.Contains(text, "race detected") || strings.Contains(text, "panic:") ||
		strings.Contains(text, "goroutine ") // a trace
}

// again runs each suspect of res by itself, and moves those that pass every
// time from the failures to the unsteady ones.
func again(res *Result, args []string, w io.Writer, run func([]string, io.Writer) (Result, error)) {
	if len(res.suspects) > 2*maxUnsteady {
		return // that is no accident
	}
	first := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "/") || a == "." })
	if first < 0 {
		return
	}
	for _, s := range res.suspects {
		top, _, _ := strings.Cut(s.test, "/")
		fmt.Fprintf(w, "-- AGAIN, %d times by itself: %s\n", tries, s.name)
		cmd := slices.Concat(args[:first], []string{fmt.Sprintf("-count=%d", tries), "-run", "^" + regexp.QuoteMeta(top) + "$", s.pkg})
		r, err := run(cmd, w)
		if err != nil || len(r.Failures) > 0 || r.Passed < tries {
			continue
		}
		res.Failures = slices.DeleteFunc(res.Failures, func(f string) bool { return f == s.name })
		res.Unsteady = append(res.Unsteady, s.name)
		res.Passed++
	}
}
