// Command scorepage attacks Berm and the sandboxes of others with one suite and
// writes docs/containment.md from the reports. What is attacked, by which command
// line, is in the file targets beside it. `make containment` runs it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/attack"
)

func main() {
	berm := flag.String("berm", "bin/berm", "the program that attacks")
	from := flag.String("targets", "scripts/scorepage/targets", "what is attacked")
	dir := flag.String("reports", "build/containment", "where reports are kept, one JSON file a target")
	only := flag.String("only", "", "attack these targets (NAME,...), and take the other reports as they are; none: attack nothing")
	cases := flag.String("cases", "", "attack with these cases alone (NAME,...), and put what comes of them into the report that is there")
	out := flag.String("o", "docs/containment.md", "the page")
	flag.Parse()
	if err := run(*berm, *from, *dir, *only, *cases, *out); err != nil {
		fmt.Fprintln(os.Stderr, "scorepage:", err)
		os.Exit(1)
	}
}

func run(berm, from, dir, only, cases, out string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	targets, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range targets {
		t := &targets[i]
		path := filepath.Join(dir, t.name+".json")
		if only == "" || strings.Contains(","+only+",", ","+t.name+",") {
			if err := t.attack(berm, path, cases); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
		if err := t.read(path); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if targets[0].report == nil {
		return errors.New("the first target is Berm, and there is no report of it")
	}
	repo, err := os.Getwd()
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(page(targets, repo)), 0o644)
}

// A target is something to attack, and what came of it.
type target struct {
	name, title    string
	needs          string // the program without which it is not here
	ask            string // the command that tells its version
	version        string
	command, notes string
	missing        string // why it was not attacked
	report         *attack.Report
}

// parse reads targets: blocks of `key: value`, with an empty line between two. A
// line that begins with a blank goes on with the value before it.
func parse(text string) (out []target, err error) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var t target
		keys := map[string]*string{"name": &t.name, "title": &t.title, "needs": &t.needs, "version": &t.ask, "command": &t.command, "notes": &t.notes}
		var at *string
		for line := range strings.SplitSeq(block, "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if strings.HasPrefix(line, " ") && at != nil {
				*at += " " + strings.TrimSpace(line)
				continue
			}
			key, value, _ := strings.Cut(line, ":")
			if at = keys[key]; at == nil {
				return nil, fmt.Errorf("%q is no key", line)
			}
			*at = strings.TrimSpace(value)
		}
		if t.name != "" {
			out = append(out, t)
		}
	}
	return out, nil
}

// attack writes a report, or why there is none.
func (t *target) attack(berm, path, cases string) error {
	args := []string{"attack", "--json"}
	if t.command != "" {
		args = append(args, "--against", t.command)
	}
	if t.needs != "" {
		if err := exec.Command("sh", "-c", t.needs).Run(); err != nil {
			if cases != "" {
				return nil // what is there stays
			}
			return os.WriteFile(path, []byte("not here: `"+t.needs+"` fails"), 0o644)
		}
	}
	if cases != "" {
		args = append(args, "--only", cases)
	}
	fmt.Fprintf(os.Stderr, "attacking %s\n", t.title)
	cmd := exec.Command(berm, args...)
	var said strings.Builder
	cmd.Stderr = &said
	b, err := cmd.Output()
	if !json.Valid(b) || len(b) == 0 {
		return fmt.Errorf("no report: %v: %.300s", err, said.String())
	}
	if cases != "" {
		if b, err = put(path, b); err != nil {
			return err
		}
	}
	if t.ask != "" {
		v, _ := exec.Command("sh", "-c", t.ask).Output()
		if err := os.WriteFile(path+".version", v, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, b, 0o644)
}

// put puts the cases of a later report in the places of those in an earlier one,
// which becomes as new as the later: its date, and who attacked.
func put(path string, later []byte) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all, some attack.Report
	if err := errors.Join(json.Unmarshal(b, &all), json.Unmarshal(later, &some)); err != nil {
		return nil, err
	}
	for _, c := range some.Cases {
		i := slices.IndexFunc(all.Cases, func(o attack.Result) bool { return o.ID == c.ID && o.Isolation == c.Isolation })
		if i < 0 {
			return nil, fmt.Errorf("the report has no case %s yet", c.ID)
		}
		all.Cases[i] = c
	}
	seconds := all.Summary.Seconds
	all.Date, all.Build, all.Suite, all.Signature = some.Date, some.Build, some.Suite, nil
	all.Summary = attack.Sum(all.Cases, all.Benign)
	all.Summary.Seconds = seconds
	return json.MarshalIndent(all, "", "  ")
}

func (t *target) read(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.missing = "not attacked"
		return nil
	}
	if err != nil {
		return err
	}
	if strings.HasPrefix(string(b), "not here") {
		t.missing = string(b)
		return nil
	}
	v, _ := os.ReadFile(path + ".version")
	t.version, _, _ = strings.Cut(strings.TrimSpace(string(v)), "\n")
	t.report = new(attack.Report)
	return json.Unmarshal(b, t.report)
}
