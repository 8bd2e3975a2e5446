package attack

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// benign is the name by which works are asked for, beside the families.
const benign = "benign"

// A Work is the other side of a case: a program that does what honest programs
// do all day. Walls that hinder it are too narrow, and whoever is hindered takes
// them down. Its file is like a case's; what lies below want/ does not go in, it
// is what must come out: want/stdout, byte for byte, and each artifact.
type Work struct {
	ID     string
	Goal   string
	Needs  []string // commands that must be inside; without one of them it is not run
	Stdin  string   // what is piped in: bulk, or text
	Env    []string // NAME=value of the caller's
	Bulk   int64    // bytes of a file bulk.bin that goes in
	Same   []string // artifacts that must be that file, or stdout
	Runs   []string // artifacts that must be executable
	Execs  int      // how many of it run at once in the one sandbox
	Egress []string // rules of a link; none: no link

	Limits api.Limits
	Exit   int
	Out    []string

	Files []File // that go in, the program first
	Want  []File // that must come out
}

//go:embed benign
var embeddedWorks embed.FS

// Works are all that this build knows, by name.
func Works() ([]Work, error) {
	var out []Work
	err := eachFile(embeddedWorks, benign, func(b []byte) (string, error) {
		w, err := parseWork(b)
		out = append(out, w)
		return w.ID, err
	})
	return out, err
}

// chosen takes what only names apart: works, and what is left for Select.
func chosen(all []Work, only []string) (works []Work, rest []string) {
	if len(only) == 0 {
		return all, nil
	}
	for _, name := range only {
		n := len(works)
		for _, w := range all {
			if name == benign || name == w.ID {
				works = append(works, w)
			}
		}
		if len(works) == n {
			rest = append(rest, name)
		}
	}
	return works, rest
}

const wants = "want/"

var wantShape = regexp.MustCompile(`^want/[^/ .][^ ]*$`)

func parseWork(b []byte) (Work, error) {
	w := Work{Execs: 1}
	c := Case{Limits: api.Limits{TimeoutSeconds: 30}}
	head, files, err := split(b, func(name string) bool { return fileShape.MatchString(name) || wantShape.MatchString(name) })
	if err != nil {
		return w, err
	}
	for _, f := range files {
		if name, is := strings.CutPrefix(f.Name, wants); is {
			w.Want = append(w.Want, File{name, f.Data})
		} else {
			w.Files = append(w.Files, f)
		}
	}
	err = eachKey(head, func(key, value string) (err error) {
		words := strings.Fields(value)
		switch key {
		case "needs":
			w.Needs = words
		case "stdin":
			w.Stdin = value
		case "env":
			w.Env = words
		case "bulk":
			w.Bulk, err = size(value)
		case "same":
			w.Same = words
		case "runs":
			w.Runs = words
		case "execs":
			w.Execs = len(words)
		case "egress":
			w.Egress = words
		case "id", "goal", "timeout", "pids", "memory", "disk", "output", "exit", "out":
			err = c.set(key, value)
		default:
			err = errors.New("is not known")
		}
		return err
	})
	if err != nil {
		return w, err
	}
	w.ID, w.Goal, w.Limits, w.Exit, w.Out = c.ID, c.Goal, c.Limits, c.Exit, c.Out
	return w, w.check()
}

func (w *Work) check() error {
	switch {
	case !idShape.MatchString(w.ID):
		return fmt.Errorf("id %.60q is not a name", w.ID)
	case w.Goal == "":
		return errors.New("it does not say what it does")
	case len(w.Files) == 0 || interpreters[path.Ext(w.Files[0].Name)] == "":
		return errors.New("it has no program")
	case w.want(stdout) == nil && !slices.Contains(w.Same, stdout):
		return errors.New("it does not say what it prints: nothing would be known of its work")
	case len(w.Out) == 0 && len(w.Want)+len(w.Same)+len(w.Runs) > 1:
		return errors.New("it wants artifacts and brings none out")
	case w.Bulk == 0 && (len(w.Same) > 0 || w.Stdin == bulk):
		return errors.New("there is no bulk")
	}
	return nil
}

const (
	stdout = "stdout"
	bulk   = "bulk"
)

// want is what must come out under that name, nil if nothing must.
func (w *Work) want(name string) []byte {
	i := slices.IndexFunc(w.Want, func(f File) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return w.Want[i].Data
}

// filled puts in what is only known while it runs.
func filled(text []byte, values map[string]string) []byte {
	for k, v := range values {
		text = bytes.ReplaceAll(text, []byte("{"+k+"}"), []byte(v))
	}
	return text
}
