package sandbox

import "fmt"

// A State is where a sandbox is in its life.
type State string

// The states. Ended and failed are final: ended left no trace on the host,
// failed may have (and the caller was told so).
const (
	Creating State = "creating"
	Running  State = "running"
	Paused   State = "paused"
	Ending   State = "ending"
	Ended    State = "ended"
	Failed   State = "failed"
)

// moves is the whole life of a sandbox: from each state, where it may go.
var moves = map[State][]State{
	Creating: {Running, Paused, Ending, Failed}, // paused: taken over as it was
	Running:  {Paused, Ending, Ended, Failed},   // ended without ending: it died by itself
	Paused:   {Running, Ending, Ended, Failed},
	Ending:   {Ended, Failed},
	Ended:    {},
	Failed:   {},
}

// next returns to if the move is legal.
func (s State) next(to State) (State, error) {
	for _, m := range moves[s] {
		if m == to {
			return to, nil
		}
	}
	return s, fmt.Errorf("a sandbox that is %s cannot become %s", s, to)
}

// final says that nothing follows s.
func (s State) final() bool { return len(moves[s]) == 0 }
