package attack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// A needle is something that only the host has: a planted value, or a fact of
// this machine. It must never come out of a sandbox.
type needle struct {
	name  string // what it is, without its value
	value string
}

// A sink takes output of any length. It looks for needles and marks as they
// pass by and keeps only the beginning.
type sink struct {
	needles []needle
	marks   []string
	found   map[string]bool // names of needles, and marks
	onMark  func(string)    // called once per mark, while the program runs

	tail  []byte // the end of what passed, shorter than the longest needle
	reach int
	head  []byte
	bytes int64
}

const sinkHead = 4 << 10

func newSink(needles []needle, marks ...string) *sink {
	s := &sink{needles: needles, marks: marks, found: map[string]bool{}, onMark: func(string) {}}
	for _, n := range needles {
		s.reach = max(s.reach, len(n.value))
	}
	for _, m := range marks {
		s.reach = max(s.reach, len(m))
	}
	return s
}

func (s *sink) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	if room := sinkHead - len(s.head); room > 0 {
		s.head = append(s.head, p[:min(room, len(p))]...)
	}
	buf := append(s.tail, p...)
	planted := bytes.Contains(buf, []byte(canaryWord)) // which most of them begin with
	for _, n := range s.needles {
		if !planted && strings.HasPrefix(n.value, canaryWord) {
			continue
		}
		if !s.found[n.name] && bytes.Contains(buf, []byte(n.value)) {
			s.found[n.name] = true
		}
	}
	for _, m := range s.marks {
		if !s.found[m] && bytes.Contains(buf, []byte(m)) {
			s.found[m] = true
			s.onMark(m)
		}
	}
	s.tail = append([]byte(nil), buf[max(0, len(buf)-max(0, s.reach-1)):]...)
	return len(p), nil
}

// leaks are the needles that passed, in words.
func (s *sink) leaks(where string) (out []string) {
	for _, n := range s.needles {
		if s.found[n.name] {
			out = append(out, n.name+" is in "+where)
		}
	}
	return out
}

// scanText looks for needles in text that Berm itself wrote.
func scanText(needles []needle, where, text string) (out []string) {
	for _, n := range needles {
		if strings.Contains(text, n.value) {
			out = append(out, n.name+" is in "+where)
		}
	}
	return out
}

// maxArtifact bounds how much of one artifact is looked through.
const maxArtifact = 64 << 20

// weigh is how many bytes files below dir say that they have.
func weigh(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if fi, err := d.Info(); err == nil {
			n += fi.Size()
		}
		return nil
	})
	return n
}

// scanArtifacts looks at what came out into dir: regular files of no special
// mode that hold no needle. What was laid out there before is left alone.
func scanArtifacts(needles []needle, dir string, before []string) (count int, wrong []string) {
	known := map[string]bool{}
	for _, b := range before {
		known[b] = true
	}
	var total int64
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir || known[path] {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if why := badName(dir, rel); why != "" {
			wrong = append(wrong, fmt.Sprintf("artifact %.80q has a name that %s", rel, why))
		}
		switch {
		case fi.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0:
			wrong = append(wrong, fmt.Sprintf("artifact %.80q came out as %v", rel, fi.Mode()))
		case d.IsDir():
			return nil
		case !fi.Mode().IsRegular():
			wrong = append(wrong, fmt.Sprintf("artifact %.80q came out as %v", rel, fi.Mode()))
			return nil
		}
		count++
		if total += fi.Size(); total > maxOut && total-fi.Size() <= maxOut {
			wrong = append(wrong, fmt.Sprintf("more than %d MiB came out", maxOut>>20))
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
			wrong = append(wrong, fmt.Sprintf("artifact %.80q is one file with another", rel))
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		s := newSink(needles)
		if _, err := io.Copy(s, io.LimitReader(f, maxArtifact)); err != nil {
			return err
		}
		wrong = append(wrong, s.leaks(fmt.Sprintf("artifact %.80q", rel))...)
		return nil
	})
	if err != nil {
		wrong = append(wrong, "artifacts cannot be read: "+err.Error())
	}
	return count, wrong
}

// deepest is how many folders one below the other may come out.
const deepest = 64

// badName says what is wrong with the last name of a path, or "".
func badName(dir, rel string) string {
	name := filepath.Base(rel)
	plain := strings.ToLower(strings.TrimRight(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name), ". "))
	switch {
	case !utf8.ValidString(name):
		return "is no text"
	case strings.ContainsFunc(name, steers):
		return "steers a terminal"
	case plain == ".git" || plain == "git~1":
		return "git takes for its own"
	case plain == "objects" && isRepository(filepath.Join(dir, filepath.Dir(rel))):
		return "makes its folder a repository"
	case strings.Count(rel, "/") >= deepest:
		return "is too deep"
	}
	return ""
}

// isRepository says whether git would take a folder for one of its own.
func isRepository(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// steers says that a terminal obeys a character, or that it turns the direction
// of text.
func steers(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

// dotsAsked says that a pattern asks for names with a dot.
func dotsAsked(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return strings.HasPrefix(p, ".") || strings.Contains(p, "/.") })
}

// dots are the names with a dot that came out though nobody asked for them.
func dots(dir string) (out []string) {
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != dir && strings.HasPrefix(d.Name(), ".") {
			out = append(out, fmt.Sprintf("%.80q came out, whose dot nobody asked for", d.Name()))
		}
		return err
	})
	return out
}
