package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// An event is one line of `go test -json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	FailedBuild string
}

// read counts the events in r and writes failures to w as they come.
//
// A test counts, and so does each of its subtests; a parent only counts as
// failed if none of its subtests did, so that one defect is one failure.
func read(r io.Reader, w io.Writer) Result {
	var res Result
	output := map[string][]string{} // package + test -> what it printed
	failed := map[string]bool{}     // tests with a failed subtest, packages with a failed test
	var running []event             // tests that have not ended
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line == "" && err != nil {
			return res
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Fprint(w, line) // not an event: a message of the go command
			continue
		}
		pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, "github.com/bermhq/berm"), "/")
		name := strings.TrimSpace(pkg + " " + e.Test)
		key := e.Package + " " + e.Test
		if e.Test != "" && (e.Action == "pass" || e.Action == "skip" || e.Action == "fail") {
			running = slices.DeleteFunc(running, func(r event) bool { return r.Package == e.Package && r.Test == e.Test })
		}
		switch e.Action {
		case "run":
			running = append(running, e)
		case "output":
			output[key] = append(output[key], e.Output)
		case "build-output":
			output["build "+e.ImportPath] = append(output["build "+e.ImportPath], e.Output)
		case "pass":
			if e.Test != "" {
				res.Passed++
			}
			delete(output, key)
		case "skip":
			if e.Test != "" {
				res.Skips = append(res.Skips, Skip{Test: name, Reason: reason(output[key])})
			}
			delete(output, key)
		case "fail":
			if e.Test == "" { // a panic or the time limit ends tests without an event of their own
				running = slices.DeleteFunc(running, func(r event) bool {
					if r.Package != e.Package {
						return false
					}
					text := output[r.Package+" "+r.Test]
					res.Failures = append(res.Failures, name+" "+r.Test+" (did not end)")
					fmt.Fprintf(w, "-- FAILED, did not end: %s %s\n%s", name, r.Test, strings.Join(text, ""))
					failed[key] = true
					return true
				})
			}
			if !failed[key] {
				res.Failures = append(res.Failures, name)
				text := output[key]
				if e.Test != "" && !damning(text) {
					res.suspects = append(res.suspects, suspect{pkg: e.Package, test: e.Test, name: name})
				}
				if e.FailedBuild != "" {
					text = append(output["build "+e.FailedBuild], text...)
				}
				fmt.Fprintf(w, "-- FAILED: %s\n%s", name, strings.Join(text, ""))
			}
			failed[e.Package+" "] = true
			for p := e.Test; strings.Contains(p, "/"); {
				p = p[:strings.LastIndex(p, "/")]
				failed[e.Package+" "+p] = true
			}
			delete(output, key)
		}
	}
}

// reason is what a skipped test said, without the lines of the framework.
func reason(output []string) string {
	var said []string
	for _, line := range strings.Split(strings.Join(output, ""), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		// "file_test.go:12: text" is text.
		if _, text, ok := strings.Cut(line, ": "); ok && strings.Contains(strings.Split(line, ": ")[0], "_test.go:") {
			line = text
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return said[len(said)-1]
}
