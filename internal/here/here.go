// Package here takes a working tree into a sandbox and brings changes back: it
// finds what goes in, remembers what it has hashed before, compares what came
// out, and writes into the tree only what was asked for, never through a link.
package here
