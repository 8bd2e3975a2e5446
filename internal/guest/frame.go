package guest

import "bytes"

// Version is the protocol version both ends speak. A host accepts it and the
// one before.
const Version = 1

// Bounds that both ends rely on.
const (
	HeaderSize = 13
	MaxFrame   = 256 << 10 // body bytes of one frame
	MaxChunk   = 128 << 10 // body bytes of a data frame as this package sends it
	MaxOpen    = 4 << 20   // bytes of one request, over all its frames
	MaxReply   = 64 << 10  // bytes of one answer
	MaxEpoch   = 0x7f7f7f  // and no byte of an epoch is above 0x7f

	// HostWindow is what a host may send ahead on one stream.
	HostWindow = 512 << 10
	// FrameCost is charged to the window for each data frame on top of its
	// body, so that a flood of tiny frames costs the receiver no more memory
	// than the window promises.
	FrameCost = 128
)

// Kinds of frame.
const (
	KindHello    = 1  // both ways, stream 0, first frame of an epoch
	KindOpenPart = 2  // to the guest: a piece of a request, more follows
	KindOpen     = 3  // to the guest: the last piece of a request; begins the call
	KindData     = 4  // stdin or an upload; stdout or a download
	KindDataErr  = 5  // to the host: stderr
	KindEnd      = 6  // no more data comes; from the guest only of a connection
	KindCredit   = 7  // both ways: the window grows
	KindReply    = 8  // to the host: the answer; ends the call
	KindCancel   = 9  // to the guest: give up and reply
	KindNote     = 10 // to the guest: signal or resize
	KindStop     = 11 // to the host: send no more data
	KindSeen     = 12 // to the host: what was seen of a running process so far
	KindGap      = 13 // to the host: so much output is no longer kept

	// KindAttach is no frame: FrameReader reports a marker with it.
	KindAttach = 0xff
)

// Magic begins a resynchronisation marker: magic, epoch (u32), nonce (u64).
// All its bytes are above 0x7f and the first occurs once, so it cannot overlap
// itself. No byte after it is, so a marker that was cut off by another one is
// seen to be none. No frame from the host ever holds it: see splitAt.
const Magic = "\xf9\xfe\xfd\xb3\x8d\xe2\xc7\x91\xad\xd6\xf4\x9b\xc2\xe8\x86\xbe"

// MarkerSize is the length of a marker.
const MarkerSize = len(Magic) + 4 + 8

// The last two bytes of a header are the low bytes of the length and may be
// anything, so a body must not even hold what follows two bytes of magic. The
// bytes before those are below 0x80 (lengths and epochs are bounded), so no
// other mixture of header and body can be the magic.
var magicCore = []byte(Magic[2:])

// splitAt returns where a host must cut body so that neither part holds the
// core of the magic, or len(body). The first part is clean; the rest is not yet
// looked at.
func splitAt(body []byte) int {
	if i := bytes.Index(body, magicCore); i >= 0 {
		return i + len(magicCore)/2
	}
	return len(body)
}

// A Frame is one frame off the wire. Body is valid until the next is read.
type Frame struct {
	Epoch  uint32
	Stream uint32
	Kind   byte
	Nonce  uint64 // of a KindAttach
	Body   []byte
}

// PutHeader writes a frame header into b[:HeaderSize].
func PutHeader(b []byte, epoch, stream uint32, kind byte, length int) {
	_ = b[HeaderSize-1]
	put32(b, epoch)
	put32(b[4:], stream)
	b[8] = kind
	put32(b[9:], uint32(length))
}

// AppendFrame adds a whole frame to b.
func AppendFrame(b []byte, epoch, stream uint32, kind byte, body []byte) []byte {
	var h [HeaderSize]byte
	PutHeader(h[:], epoch, stream, kind, len(body))
	return append(append(b, h[:]...), body...)
}

// AppendMarker adds a resynchronisation marker to b.
func AppendMarker(b []byte, epoch uint32, nonce uint64) []byte {
	b = append(b, Magic...)
	var t [12]byte
	put32(t[:], epoch)
	put32(t[4:], uint32(nonce>>32))
	put32(t[8:], uint32(nonce))
	return append(b, t[:]...)
}

// newMarks masks what may be an epoch and a nonce. An epoch is never 0.
func newMarks(epoch uint32, nonce uint64) (uint32, uint64) {
	return max(epoch&MaxEpoch, 1), nonce & 0x7f7f7f7f_7f7f7f7f
}

// ParseCredit reads the body of a KindCredit frame; false if it is none.
func ParseCredit(body []byte) (int, bool) {
	v, n := consumeVarint(body)
	return int(v), n == len(body) && n > 0 && v > 0 && v <= 1<<30
}

// AppendCredit adds the body of a KindCredit frame to b.
func AppendCredit(b []byte, n int) []byte { return appendVarint(b, uint64(n)) }

func put32(b []byte, v uint32) {
	_ = b[3]
	b[0], b[1], b[2], b[3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
}

func get32(b []byte) uint32 {
	_ = b[3]
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
