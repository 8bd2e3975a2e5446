// Package daemon puts the parts together: it is the only place that knows them
// all. Start is what `berm run` needs without a running daemon: it makes sure
// that the embedded programs and the template's image are in the state
// directory, then starts two processes and joins them by sockets:
//
//	caller (command line) --HTTP--> worker (engine, guest protocol) --> keeper
//
// The keeper keeps the caller's rights and parses nothing that a guest wrote.
// The worker parses all of it and, started by root, runs as a uid that owns
// nothing. The end of the caller ends both, and every sandbox with them.
package daemon
