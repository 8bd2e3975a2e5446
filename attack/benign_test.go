package attack

import (
	"slices"
	"strings"
	"testing"
)

// Works are many, and none is believed: each says what must come out.
func TestWorks(t *testing.T) {
	all, err := Works()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 25 {
		t.Errorf("%d works", len(all))
	}
	linked := 0
	for _, w := range all {
		if !strings.HasPrefix(w.ID, "benign-") {
			t.Errorf("%s could be taken for a case", w.ID)
		}
		if len(w.Egress) > 0 {
			linked++
		}
	}
	if linked < 3 {
		t.Errorf("%d of them use a link", linked)
	}
}

func TestWorkIsWellFormed(t *testing.T) {
	const good = "id: benign-x\ngoal: g\n\n-- main.sh --\necho\n-- want/stdout --\n\n"
	if _, err := parseWork([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for why, text := range map[string]string{
		"no goal":          "id: benign-x\n\n-- main.sh --\necho\n-- want/stdout --\n",
		"wants nothing":    "id: benign-x\ngoal: g\n\n-- main.sh --\necho\n",
		"no program":       "id: benign-x\ngoal: g\n\n-- want/stdout --\n",
		"a key of a case":  "wall: disk\n" + good,
		"nothing comes":    good + "-- want/a --\n",
		"no bulk":          "same: stdout\n" + good,
		"leaves its place": good + "-- want/../a --\n",
	} {
		if _, err := parseWork([]byte(text)); err == nil {
			t.Errorf("%s: taken", why)
		}
	}
}

func TestChosen(t *testing.T) {
	all := []Work{{ID: "benign-a"}, {ID: "benign-b"}}
	for only, want := range map[string][2]int{"": {2, 0}, "benign": {2, 0}, "benign-b": {1, 0}, "escape": {0, 1}, "escape,benign-a": {1, 1}, "benign-c": {0, 1}} {
		works, rest := chosen(all, slices.DeleteFunc(strings.Split(only, ","), func(s string) bool { return s == "" }))
		if len(works) != want[0] || len(rest) != want[1] {
			t.Errorf("--only %s: %d works, %v", only, len(works), rest)
		}
	}
}

// A difference is shown where it begins, whatever is there.
func TestDiffer(t *testing.T) {
	got := differ([]byte(strings.Repeat("a", 30)+"b"), []byte(strings.Repeat("a", 30)+"c"))
	if !strings.Contains(got, "from byte 30 on") || !strings.Contains(got, `ab", not`) {
		t.Error(got)
	}
	differ(nil, []byte("x"))
	differ([]byte("x"), nil)
}
