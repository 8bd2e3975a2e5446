// Package keeper is the small process that is every sandbox's parent. It alone
// keeps root where Berm was started as root. It launches through jail, holds
// the deadlines, and cleans up behind every ending.
//
// Run is a keeper with one owner, that of a berm run: the end of its socket
// means kill and clean at once. Serve is one that outlives its daemon: it keeps
// a descriptor of each of a sandbox's, and hands them out again to the daemon
// that connects next; it pauses, and it remembers how those ended that no daemon
// heard of.
//
// It parses nothing that comes from a guest. What it is asked arrives from the
// engine, which does not have its rights, so every request is checked: names
// are names and not paths, and a child never gets more than the launcher gives
// all of them.
package keeper
