// Command gotest runs tests for people and CI. It runs `go test -json`, prints
// failures in full and the rest as counts, gives each skipped test with its
// reason, asks a test that failed once more (see again.go), and adds everything up over several runs, so that the last line of a
// long script is the truth about all of it:
//
//	gotest -tally FILE -name "units" -- go test -json ./...
//	gotest -tally FILE -name "attack" -command -- bin/berm attack
//	gotest -tally FILE -name "Python SDK" -counted -- sdk/python/test.sh
//	gotest -tally FILE -skip "race detector: no C compiler here"
//	gotest -tally FILE -sum
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

func main() {
	tally := flag.String("tally", "", "`file` that collects the counts of several runs")
	name := flag.String("name", "tests", "what to call this run")
	skip := flag.String("skip", "", "count one skipped test with this `reason` and run nothing")
	command := flag.Bool("command", false, "the command is one test of its own, passed if it exits 0")
	counted := flag.Bool("counted", false, "the command's last line is its counts: 3 passed, 0 failed, 1 skipped")
	sum := flag.Bool("sum", false, "print the sum of the tally; exit 1 if anything failed or nothing ran")
	flag.Parse()

	var err error
	switch {
	case *sum:
		var ok bool
		if ok, err = printSum(os.Stdout, *tally); err == nil && !ok {
			os.Exit(1) // the closing line has said it
		}
	case *skip != "":
		err = Result{Name: "", Skips: []Skip{{Test: "", Reason: *skip}}}.save(*tally)
	default:
		err = run(*tally, *name, *command, *counted, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// run runs one command and adds its counts to the tally.
func run(tally, name string, whole, counted bool, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command after --")
	}
	fmt.Printf("== %s\n", name)
	began := time.Now()
	var res Result
	var err error
	switch {
	case whole:
		res, err = runCommand(args)
	case counted:
		res, err = runCounted(args, os.Stdout)
	default:
		if res, err = runGoTest(args, os.Stdout); err == nil {
			again(&res, args, os.Stdout, runGoTest)
		}
	}
	if err != nil {
		return err
	}
	res.Name = name
	fmt.Printf("   %d passed, %d failed, %d skipped in %.1f s\n", res.Passed, len(res.Failures), len(res.Skips), time.Since(began).Seconds())
	if err := res.save(tally); err != nil {
		return err
	}
	if len(res.Failures) > 0 {
		return fmt.Errorf("%s: %d failed", name, len(res.Failures))
	}
	return nil
}

// runCommand runs a command that is one test.
func runCommand(args []string) (Result, error) {
	var out bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = io.MultiWriter(os.Stdout, &out)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return Result{Failures: []string{fmt.Sprintf("%v: %v", args, err)}}, nil
	}
	return Result{Passed: 1}, nil
}

// runGoTest runs `go test -json` and reads its events.
func runGoTest(args []string, w io.Writer) (Result, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	res := read(out, w)
	if err := cmd.Wait(); err != nil && len(res.Failures) == 0 {
		res.Failures = append(res.Failures, fmt.Sprintf("%v: %v", args, err))
	}
	return res, nil
}
