// Package keeper is the small process that is every sandbox's parent. It alone
// keeps root where Berm was started as root. It launches through jail, holds
// the deadlines, and cleans up behind every ending, its owner's sudden death
// included: the end of the owner's socket means kill and clean at once.
//
// It parses nothing that comes from a guest. What it is asked arrives from the
// engine, which does not have its rights, so every request is checked: names
// are names and not paths, and a child never gets more than the launcher gives
// all of them.
package keeper
