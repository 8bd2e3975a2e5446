// Package daemon puts the parts together: it is the only place that knows them
// all. It has two ways to do so.
//
// Start is what `berm run` needs without a running daemon: it makes sure that the
// embedded programs and the template's image are in the state directory, then
// starts two processes and joins them by sockets:
//
//	caller (command line) --HTTP--> worker (engine, guest protocol) --> keeper
//
// The keeper keeps the caller's rights and parses nothing that a guest wrote.
// The worker parses all of it and, started by root, runs as a uid that owns
// nothing. The end of the caller ends both, and every sandbox with them.
//
// Serve is `berm serve`: one process with the engine, the API, tokens and the
// log, for many clients. What takes the rights it was started with is done first
// (ground.go), and those are given up before it reads anything from anybody. Its
// keeper outlives it, started by Serve or by a service manager (keep.go), so
// that the next daemon finds every sandbox where this one left it.
package daemon
