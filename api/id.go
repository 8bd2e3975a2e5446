package api

import (
	"crypto/rand"
	"encoding/hex"
)

// Kinds of id, the first letter of each.
const (
	KindSandbox = 's'
	KindRun     = 'r'
	KindExec    = 'x'
	KindRequest = 'q'
	KindEvent   = 'e'
	KindToken   = 't'
	KindBuild   = 'b'
	KindTree    = 'w' // a workspace
)

// NewID makes an id of a kind: ^[a-z0-9]{33}$, 128 random bits, never reused.
func NewID(kind byte) string {
	var b [16]byte
	rand.Read(b[:])
	return string(kind) + hex.EncodeToString(b[:])
}

// ValidID says whether s has the shape of an id.
func ValidID(s string) bool {
	if len(s) < 24 || len(s) > 40 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
