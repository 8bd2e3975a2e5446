// Package guest is the host's side of the conversation with the agent inside a
// sandbox, and the vocabulary both ends share: frames, messages and their
// bounds. One byte stream per sandbox carries any number of calls; each call is
// a stream of frames with its own flow control, so a reader that stalls on one
// never stops another.
//
// Every byte that comes from the guest is hostile. Lengths, counts and windows
// are checked before anything is kept, nothing is trusted to arrive, and a guest
// that breaks a rule is cut off: the Client ends with an error that wraps
// ErrProtocol and every pending call returns at once. What the guest says is
// never proof of anything; it is convenience, not a wall.
//
// The wire is described in docs/guest-protocol.md.
package guest
