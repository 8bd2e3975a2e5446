// Package sandbox is the engine: it makes sandboxes on a backend, runs
// commands in them, moves files, and ends them. One file per thing it does;
// state.go is the table of what may follow what.
//
// The guest is hostile. Its agent is asked for convenience, but no path waits
// for it without a deadline, and where it is silent, lies or floods, the
// instance is stopped from outside. Each exec has exactly one ending; what the
// host saw counts for more than what the guest says.
package sandbox
