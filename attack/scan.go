package attack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	for _, n := range s.needles {
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

// scanArtifacts looks at what came out into dir: regular files of no special
// mode that hold no needle. What was laid out there before is left alone.
func scanArtifacts(needles []needle, dir string, before []string) (count int, wrong []string) {
	known := map[string]bool{}
	for _, b := range before {
		known[b] = true
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir || known[path] {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
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
