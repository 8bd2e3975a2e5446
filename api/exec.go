package api

import "encoding/binary"

// An exec is one HTTP request that is upgraded: the request's JSON body is an
// ExecRequest, the answer is "101 Switching Protocols", and from then on both
// sides send frames: one byte of kind, four bytes of length (big endian), and
// the payload. Anything that goes wrong before the upgrade is an Error with its
// status, as on every other route.
const ExecProtocol = "berm-exec"

// Frame kinds. A side that gets a kind which is not its own closes the
// connection, and a closed connection ends the exec; one that was asked for with
// an exec_id goes on for 10 s, for .../output or the same exec_id to come back to it.
const (
	FrameStdin      = 1 // client: bytes for standard input
	FrameStdinClose = 2 // client: no more of them
	FrameResize     = 3 // client: u16 rows, u16 columns
	FrameSignal     = 4 // client: u8 signal number

	FrameStdout = 16 // server: bytes from standard output (or the terminal)
	FrameStderr = 17 // server: bytes from standard error
	FrameAck    = 18 // server: u32, that many bytes of stdin went in; 0: its end did
	FrameResult = 19 // server: ExecResult as JSON; the last frame
	FrameError  = 20 // server: Error as JSON; the last frame
	FrameLost   = 21 // server: u64, so many bytes of output before the next are no longer kept; with an exec_id only
)

const (
	// FrameHeader is the length of a frame's header.
	FrameHeader = 5
	// MaxFrame bounds the payload of a stream frame, MaxResult that of the last.
	MaxFrame  = 64 << 10
	MaxResult = 256 << 10
	// StdinWindow is how many bytes of stdin a client may send ahead of the acks.
	StdinWindow = 256 << 10
)

// PutFrameHeader writes the header of a frame into h.
func PutFrameHeader(h *[FrameHeader]byte, kind byte, size int) {
	h[0] = kind
	binary.BigEndian.PutUint32(h[1:], uint32(size))
}

// ParseFrameHeader reads a header. ok is false if the frame is longer than its
// kind may be, or of no known kind.
func ParseFrameHeader(h [FrameHeader]byte) (kind byte, size int, ok bool) {
	kind = h[0]
	n := binary.BigEndian.Uint32(h[1:])
	var limit uint32
	switch kind {
	case FrameStdin, FrameStdout, FrameStderr:
		limit = MaxFrame
	case FrameStdinClose:
		limit = 0
	case FrameResize, FrameAck:
		limit = 4
	case FrameSignal:
		limit = 1
	case FrameLost:
		limit = 8
	case FrameResult, FrameError:
		limit = MaxResult
	default:
		return kind, 0, false
	}
	return kind, int(n), n <= limit
}
