package sandbox

import "testing"

func TestMoves(t *testing.T) {
	all := []State{Creating, Running, Paused, Ending, Ended, Failed}
	legal := map[[2]State]bool{
		{Creating, Running}: true, {Creating, Ending}: true, {Creating, Failed}: true,
		{Running, Ending}: true, {Running, Ended}: true, {Running, Failed}: true,
		{Creating, Paused}: true, {Running, Paused}: true, {Paused, Running}: true,
		{Paused, Ending}: true, {Paused, Ended}: true, {Paused, Failed}: true,
		{Ending, Ended}: true, {Ending, Failed}: true,
	}
	for _, from := range all {
		for _, to := range all {
			got, err := from.next(to)
			want := legal[[2]State{from, to}]
			if (err == nil) != want {
				t.Errorf("%s -> %s: err = %v, legal = %v", from, to, err, want)
			}
			if want && got != to || !want && got != from {
				t.Errorf("%s -> %s: now %s", from, to, got)
			}
		}
		if from.final() != (from == Ended || from == Failed) {
			t.Errorf("%s.final() = %v", from, from.final())
		}
	}
	if _, err := State("other").next(Running); err == nil {
		t.Error("an unknown state may not move")
	}
}
