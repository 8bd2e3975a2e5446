package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// A Result is what one run of tests came to.
type Result struct {
	Name     string
	Passed   int
	Failures []string
	Unsteady []string // failed once, and then passed by themselves
	Skips    []Skip

	suspects []suspect // tests that failed in a way that may be the machine's
}

// A Skip is a test that did not run, and why.
type Skip struct{ Test, Reason string }

// save appends the result to the tally; without one it is only printed.
func (r Result) save(tally string) error {
	if tally == "" {
		return nil
	}
	f, err := os.OpenFile(tally, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(f).Encode(r); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// printSum prints failures, skips and the closing line over all saved results,
// and says whether tests ran and none failed.
func printSum(w io.Writer, tally string) (ok bool, err error) {
	f, err := os.Open(tally)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var passed int
	var failures, unsteady, skips []string
	dec := json.NewDecoder(f)
	for {
		var r Result
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return false, err
		}
		passed += r.Passed
		failures = append(failures, r.Failures...)
		unsteady = append(unsteady, r.Unsteady...)
		for _, s := range r.Skips {
			line := s.Reason
			if s.Test != "" {
				line = s.Test + ": " + s.Reason
			}
			skips = append(skips, line)
		}
	}
	for _, s := range skips {
		fmt.Fprintln(w, "skipped:", s)
	}
	for _, s := range unsteady {
		fmt.Fprintf(w, "unsteady: %s: failed among others, then passed %d times of %d by itself\n", s, tries, tries)
	}
	if len(unsteady) > maxUnsteady {
		failures = append(failures, fmt.Sprintf("%d tests are unsteady, and %d may be", len(unsteady), maxUnsteady))
	}
	for _, s := range failures {
		fmt.Fprintln(w, "failed:", s)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, len(failures), len(skips))
	return len(failures) == 0 && passed > 0, nil
}
