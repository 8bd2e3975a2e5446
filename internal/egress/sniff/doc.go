// Package sniff reads the first bytes of a connection: TLS client hellos and
// the heads and bodies of HTTP/1 requests, strictly. What it is not sure of is
// an error, for a server might read it differently. Pure.
package sniff
