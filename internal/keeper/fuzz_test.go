package keeper

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever a daemon asks, the keeper answers, and what it admits has names that
// are names.
func FuzzRequest(f *testing.F) {
	for _, q := range []request{
		{Seq: 1, Op: "hello", Version: Version, Oldest: oldest},
		{Op: "launch", Launch: &Launch{ID: testID, Images: []string{fakeImage}, Args: []string{"runsc-sandbox"}, Runtime: strings.Repeat("a", 64)}},
		{Op: "list", ID: "a"}, {Op: "ended"}, {Op: "forget", ID: testID}, {Op: "attach", ID: testID}, {Op: "control", ID: testID},
		{Op: "pause", ID: testID}, {Op: "resume"}, {Op: "stop", ID: testID}, {Op: "deadline", ID: testID, DeadlineMS: -1}, {Op: "shutdown"},
	} {
		b, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var q request
		if json.Unmarshal(b, &q) != nil || q.Op == "facts" {
			return
		}
		k := &Keeper{mode: ModeUnit, running: map[string]*sandbox{}, stir: make(chan struct{}, 1),
			past: []Exited{{ID: testID, Cause: CauseDeadline}}}
		if q.Op == "launch" {
			if q.Launch == nil {
				return
			}
			s, err := k.admit(*q.Launch, nil)
			if err != nil {
				return
			}
			for _, name := range append(q.Launch.Images, s.id, "x"+q.Launch.Runtime) {
				if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || filepath.Base(name) != name {
					t.Errorf("%q was admitted", name)
				}
			}
			return
		}
		r, files, err := k.do(q, nil, nil)
		if len(files) > 0 {
			t.Errorf("%q: descriptors of nothing", b)
		}
		if out, jerr := json.Marshal(r); err == nil && (jerr != nil || len(out) > maxMessage) {
			t.Errorf("%q: an answer of %d bytes, %v", b, len(out), jerr)
		}
	})
}
