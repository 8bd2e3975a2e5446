package main

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

var (
	countsLine = regexp.MustCompile(`^(\d+) passed, (\d+) failed, (\d+) skipped$`)
	skipLine   = regexp.MustCompile(`^SKIPPED \[(\d+)\] (.*)$`) // as pytest has it
)

// runCounted runs a command that counts its own tests.
func runCounted(args []string, w io.Writer) (Result, error) {
	var out bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = io.MultiWriter(w, &out)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	return counts(out.String(), err, args), nil
}

// counts reads what such a command said. One that said nothing, or failed
// without a failure, has failed.
func counts(out string, err error, args []string) (res Result) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	m := countsLine.FindStringSubmatch(strings.TrimSpace(lines[len(lines)-1]))
	if m == nil {
		return Result{Failures: []string{fmt.Sprintf("%v: no counts in its last line: %v", args, err)}}
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v }
	res.Passed = n(1)
	for range n(2) {
		res.Failures = append(res.Failures, fmt.Sprintf("%v: see above", args))
	}
	if err != nil && n(2) == 0 {
		res.Failures = append(res.Failures, fmt.Sprintf("%v: %v", args, err))
	}
	for _, l := range lines {
		if s := skipLine.FindStringSubmatch(strings.TrimSpace(l)); s != nil {
			k, _ := strconv.Atoi(s[1])
			for range min(k, n(3)-len(res.Skips)) {
				res.Skips = append(res.Skips, Skip{Test: args[0], Reason: s[2]})
			}
		}
	}
	for len(res.Skips) < n(3) {
		res.Skips = append(res.Skips, Skip{Test: args[0], Reason: "told above"})
	}
	return res
}
