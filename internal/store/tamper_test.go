package store

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

// written is a store that was closed in order, with n events in it.
func written(t *testing.T, n int, o Options) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := mustOpen(t, dir, o)
	for i := range n {
		if err := s.Append(context.Background(), event("a.b", "s", fmt.Sprintf(`{"i":%d}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// files are all files below a directory, but those that a refused open may touch.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(data)
	}
	return all
}

// lines are the lines of a log, each with its newline.
func lines(log []byte) [][]byte {
	all := bytes.SplitAfter(log, []byte("\n"))
	return all[:len(all)-1]
}

func join(all ...[]byte) []byte { return bytes.Join(all, nil) }

// flip changes one letter of the event's data.
func flip(line []byte) []byte { return bytes.Replace(line, []byte(`"i":`), []byte(`"j":`), 1) }

// anew is a log with the same events as all, with right hashes, by somebody who
// has no key; what f drops is not in it.
func anew(t *testing.T, all [][]byte, f func(body []byte) []byte) []byte {
	t.Helper()
	l, err := audit.Parse(all[0])
	if err != nil {
		t.Fatal(err)
	}
	var c audit.Chain
	if _, err := c.Next(all[0]); err != nil || l.Kind != audit.KindSegment {
		t.Fatal(l.Kind, err)
	}
	out := bytes.Clone(all[0])
	for _, line := range all[1:] {
		body := f(audit.EventBody(line))
		if body == nil {
			continue
		}
		var e api.Event
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatal(err)
		}
		e.Seq = c.NextSeq
		if body, err = audit.Encode(e); err != nil {
			t.Fatal(err)
		}
		out = c.Add(out, body)
	}
	return out
}

// TestTampered: a log that was changed while nobody ran is not opened, and
// nothing of it is cut, whatever was changed.
func TestTampered(t *testing.T) {
	const n = 40
	dir := written(t, n, Options{})
	name := filepath.Join(dir, "audit", "000001.log")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := lines(data)
	if len(all) != n+1 {
		t.Fatal(len(all))
	}
	same := func(b []byte) []byte { return b }
	for what, c := range map[string]struct {
		log []byte
		seq uint64
	}{
		"a byte in the middle":       {join(join(all[:20]...), flip(all[20]), join(all[21:]...)), 20},
		"a byte in the first event":  {join(all[0], flip(all[1]), join(all[2:]...)), 1},
		"a byte in the first line":   {join(bytes.Replace(all[0], []byte(`"n":1`), []byte(`"n":2`), 1), join(all[1:]...)), 1},
		"a byte in the last event":   {join(join(all[:n]...), flip(all[n])), n},
		"a line is gone":             {join(join(all[:20]...), join(all[21:]...)), 20},
		"two lines changed places":   {join(join(all[:20]...), all[21], all[20], join(all[22:]...)), 20},
		"a line twice":               {join(join(all[:20]...), all[19], join(all[20:]...)), 20},
		"a newline is gone":          {join(join(all[:20]...), bytes.TrimSuffix(all[20], []byte("\n")), join(all[21:]...)), 20},
		"a line of another log":      {join(join(all[:20]...), lines(anew(t, all, flip))[20], join(all[21:]...)), 20},
		"zeros in the middle":        {join(data[:len(data)/2], make([]byte, 512), data[len(data)/2+512:]), 0},
		"all after a place is noise": {join(data[:len(data)/2], bytes.Repeat([]byte("x"), 4096)), 0},
		"whole lines cut off":        {join(all[:n-3]...), n - 3},
		"the last line cut off":      {join(all[:n]...), n},
		"the last line torn":         {data[:len(data)-7], n},
		"only the first line":        {all[0], 1},
		"nothing":                    {nil, 1},
		"noise":                      {bytes.Repeat([]byte("x"), 1<<20), 1},
		"written anew, one less":     {anew(t, all, func(b []byte) []byte { return drop(b, `"i":7}`) }), n},
		"written anew, one other":    {anew(t, all, func(b []byte) []byte { return flip(b) }), n},
		"a line more of nobody":      {join(data, all[n]), n + 1},
	} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(name, c.log, 0o600); err != nil {
				t.Fatal(err)
			}
			before := files(t, filepath.Join(dir, "audit"))
			_, err := Open(dir, Options{Name: "/state/daemon"})
			var damage *DamageError
			var e *api.Error
			if !errors.As(err, &damage) || !errors.As(err, &e) {
				t.Fatalf("%v", err)
			}
			if damage.File != "audit/000001.log" || c.seq != 0 && damage.Seq != c.seq || damage.Why == "" {
				t.Errorf("%+v, expected event %d", damage, c.seq)
			}
			for _, part := range []string{"/state/daemon/audit", "berm audit verify", `"40 REASON"`, "/state/daemon/audit-break"} {
				if !strings.Contains(e.Hint, part) {
					t.Errorf("no %s in the hint: %s", part, e.Hint)
				}
			}
			after := files(t, filepath.Join(dir, "audit"))
			if fmt.Sprint(before) != fmt.Sprint(after) {
				t.Error("files were changed")
			}
		})
	}
	for what, log := range map[string][]byte{"as it was": data, "written anew, the same": anew(t, all, same)} {
		if err := os.WriteFile(name, log, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func drop(body []byte, with string) []byte {
	if bytes.Contains(body, []byte(with)) {
		return nil
	}
	return body
}

// TestTamperedFiles: so it is with files that are gone, or of another log.
func TestTamperedFiles(t *testing.T) {
	o := Options{SegmentBytes: 4 << 10, MaxBytes: 512 << 10}
	dir := written(t, 60, o)
	other := written(t, 80, o)
	in := func(dir, name string) string { return filepath.Join(dir, "audit", name) }
	copied := func(from, to string) error {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o600)
	}
	entries, err := filepath.Glob(in(dir, "*.log"))
	if err != nil || len(entries) < 3 {
		t.Fatal(entries, err)
	}
	last := entries[len(entries)-1]
	old := t.TempDir()
	if err := os.CopyFS(filepath.Join(old, "a"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"all of it":      func() error { return os.RemoveAll(filepath.Join(dir, "audit")) },
		"all files":      func() error { return each(entries, os.Remove) },
		"the last file":  func() error { return os.Remove(last) },
		"a file between": func() error { return os.Remove(entries[1]) },
		"the first file": func() error { return os.Remove(entries[0]) },
		"an empty file":  func() error { return os.Truncate(last, 0) },
		"the key":        func() error { return os.Remove(in(dir, "key")) },
		"another key":    func() error { return copied(in(other, "key"), in(dir, "key")) },
		"the state":      func() error { return os.Remove(filepath.Join(dir, "state.db")) },
		"another log": func() error {
			return errors.Join(os.RemoveAll(in(dir, "")), os.CopyFS(in(dir, ""), os.DirFS(in(other, ""))))
		},
		"a forged anchor":  func() error { return os.WriteFile(in(dir, "anchor"), forged(t), 0o600) },
		"more behind seal": func() error { return add(entries[0], "{}\n") },
	} {
		if err := change(); err != nil {
			t.Fatal(what, err)
		}
		before := files(t, filepath.Join(dir, "audit"))
		var damage *DamageError
		if _, err := Open(dir, o); !errors.As(err, &damage) {
			t.Errorf("%s: %v", what, err)
		}
		if after := files(t, filepath.Join(dir, "audit")); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s: files were changed", what)
		}
		if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join(old, "a")))); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, dir, o)
}

func each(names []string, f func(string) error) (err error) {
	for _, n := range names {
		err = errors.Join(err, f(n))
	}
	return err
}

func add(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// forged is an anchor that gives up segments, by somebody with a key of their own.
func forged(t *testing.T) []byte {
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := audit.Anchor{V: 1, N: 3, FirstSeq: 20, Link: audit.Hash{}.String(), Key: fmt.Sprintf("%x", []byte(pub)), Time: "t"}
	a.Sign(key)
	body, err := audit.Encode(a)
	if err != nil {
		t.Fatal(err)
	}
	line, _ := audit.Append(nil, audit.Hash{}, audit.KindAnchor, body)
	return line
}

// TestGivenUp: a log that is moved aside by somebody who says so is followed by
// one that begins with that.
func TestGivenUp(t *testing.T) {
	dir := written(t, 12, Options{})
	if err := os.Rename(filepath.Join(dir, "audit"), filepath.Join(t.TempDir(), "aside")); err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(dir, "audit-break")
	for _, wrong := range []string{"", "11 no", "12x", "no"} {
		if err := os.WriteFile(said, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if _, err := Open(dir, Options{}); !errors.As(err, &damage) {
			t.Fatalf("%q: %v", wrong, err)
		}
	}
	if err := os.WriteFile(said, []byte("12 the disk was restored\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := mustOpen(t, dir, Options{})
		got, _, err := s.Events(Query{Tenant: api.DefaultTenant})
		if err != nil || len(got) != 1 || got[0].Seq != 1 || got[0].Type != api.EventAuditBroken {
			t.Fatalf("%+v, %v", got, err)
		}
		var d brokenOff
		if err := json.Unmarshal(got[0].Data, &d); err != nil || d.LastSeq != 12 || d.Said != "the disk was restored" || d.Hash == "" || d.Key == "" {
			t.Errorf("%s", got[0].Data)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(said); !errors.Is(err, os.ErrNotExist) {
			t.Error("what was said stays", err)
		}
	}
	// It counts once: the new log is as safe as the old one was.
	if err := os.RemoveAll(filepath.Join(dir, "audit")); err != nil {
		t.Fatal(err)
	}
	var damage *DamageError
	if _, err := Open(dir, Options{}); !errors.As(err, &damage) {
		t.Error(err)
	}
}

// TestMark: the state knows how far the log is while it is written, not only
// after an orderly end.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	for range 5 {
		if err := s.Append(context.Background(), event("a.b", "s", "")); err != nil {
			t.Fatal(err)
		}
	}
	var m mark
	eventually(t, func() bool {
		ok, err := s.marks().Get("mark", &m)
		return ok && err == nil && m.Seq == 5
	})
	if h := s.Head(); m.Hash != h.Hash || m.Key != h.Key {
		t.Errorf("%+v, %+v", m, h)
	}
}

// TestEveryByte changes each byte of a log, and cuts it at each, and then with
// a mark that is behind: nothing that the mark covers passes, and what does pass
// behind it is either refused or was a last line without an end.
func TestEveryByte(t *testing.T) {
	d := newMemDisk(1)
	l := testLog(t, d, Options{ReserveBytes: 1})
	for i := range 3 {
		mustAppend(t, l, event("a.b", "s", fmt.Sprintf(`{"i":%d}`, i)))
	}
	early := l.headCopy()
	mustAppend(t, l, event("a.b", "s", ""), event("a.b", "s", ""))
	head := l.headCopy()
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	const name = "/s/audit/000001.log"
	data := bytes.Clone(d.names[name].data)
	last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	try := func(log []byte, known api.Head) (end uint64, err error) {
		d.names[name] = &memFile{data: bytes.Clone(log), safe: bytes.Clone(log)}
		l, err := loadLog(d, "/s/audit", Options{ReserveBytes: 1}.withDefaults(), &known)
		if err != nil {
			if got := d.names[name].data; !bytes.Equal(got, log) {
				t.Fatal("a refused log was changed")
			}
			var damage *DamageError
			if !errors.As(err, &damage) {
				t.Fatal(err)
			}
			return 0, err
		}
		return l.head.Seq, nil
	}
	for at := range data {
		changed := bytes.Clone(data)
		changed[at] ^= 1
		if _, err := try(changed, head); err == nil {
			t.Fatalf("byte %d is changed, and it passes", at)
		}
		if _, err := try(data[:at], head); err == nil {
			t.Fatalf("cut at byte %d, and it passes", at)
		}
		if end, err := try(changed, early); err == nil && (at != len(data)-1 || end != head.Seq-1) {
			t.Fatalf("byte %d is changed, and it passes up to event %d; the last line begins at %d", at, end, last)
		}
		if end, err := try(data[:at], early); err == nil && end < early.Seq {
			t.Fatalf("cut at byte %d, and it passes up to event %d of %d", at, end, early.Seq)
		}
	}
	if end, err := try(data, head); err != nil || end != head.Seq {
		t.Fatal(end, err)
	}
}

// TestMoved: nothing is written for long into a file that was moved away, and
// with the file back nothing is missing.
func TestMoved(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	ctx := context.Background()
	acked := 0
	put := func() error {
		err := s.Append(ctx, event("a.b", "s", ""))
		if err == nil {
			acked++
		}
		return err
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "audit", "000001.log")
	if err := os.Rename(name, name+".away"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return s.Degraded() != "" })
	var e *api.Error
	if err := put(); !errors.As(err, &e) || e.Code != api.CodeAuditFailed {
		t.Errorf("it goes on without its file: %v", err)
	}
	if err := os.Rename(name+".away", name); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return s.Degraded() == "" })
	if err := put(); err != nil {
		t.Fatal(err)
	}
	head := s.Head()
	if v, err := s.Verify(ctx, &head); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	if got := all(t, s.log, Query{Types: []string{"a.b"}}); len(got) != acked {
		t.Errorf("%d of %d", len(got), acked)
	}
}
