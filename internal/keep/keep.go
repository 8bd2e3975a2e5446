// Package keep holds output within a bound: the first and the last half of what
// was written, with the middle dropped and counted. It is pure.
package keep

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// A Keeper is an io.Writer that keeps the first and the last half of its limit
// and drops what is between them. It never fails.
type Keeper struct {
	head, tail []byte // tail is a ring once it is full
	headMax    int
	tailMax    int
	at         int // start of the ring
	dropped    int64
}

// New returns a Keeper of at most limit bytes, which take memory as they come.
func New(limit int64) *Keeper {
	half := int(limit / 2)
	return &Keeper{headMax: int(limit) - half, tailMax: half}
}

// Write implements io.Writer.
func (k *Keeper) Write(p []byte) (int, error) {
	n := len(p)
	if room := k.headMax - len(k.head); room > 0 {
		take := min(room, len(p))
		k.head = append(k.head, p[:take]...)
		p = p[take:]
	}
	if over := len(p) - k.tailMax; over > 0 { // only the last part can stay
		k.dropped += int64(over)
		p = p[over:]
	}
	if room := k.tailMax - len(k.tail); room > 0 {
		take := min(room, len(p))
		k.tail = append(k.tail, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		c := copy(k.tail[k.at:], p)
		k.at = (k.at + c) % k.tailMax
		k.dropped += int64(c)
		p = p[c:]
	}
	return n, nil
}

// Len is how many bytes are kept.
func (k *Keeper) Len() int64 { return int64(len(k.head) + len(k.tail)) }

// Room is by how many bytes a write of n would make Len grow.
func (k *Keeper) Room(n int) int64 {
	return int64(min(n, k.headMax-len(k.head)+k.tailMax-len(k.tail)))
}

// Freeze lets it grow no more: from now on what is dropped is what does not fit
// into the memory that it has.
func (k *Keeper) Freeze() { k.headMax, k.tailMax = len(k.head), len(k.tail) }

// Skip says that n bytes which belong here were lost elsewhere.
func (k *Keeper) Skip(n int64) { k.dropped += n }

// Parts is what was kept, in order and not copied: it holds until the next
// write. Runes that the cut itself split are dropped.
func (k *Keeper) Parts() (parts [3][]byte, dropped int64) {
	parts = [3][]byte{k.head, k.tail[k.at:], k.tail[:k.at]}
	dropped = k.dropped
	if dropped > 0 {
		h := len(parts[0])
		parts[0] = trimEnd(parts[0])
		dropped += int64(h - len(parts[0]))
		for i, n := 1, 1; i < len(parts) && n < utf8.UTFMax; {
			switch p := parts[i]; {
			case len(p) == 0:
				i++
				continue
			case utf8.RuneStart(p[0]):
				return parts, dropped
			}
			parts[i] = parts[i][1:]
			dropped++
			n++
		}
	}
	return parts, dropped
}

// Result is what was kept: as text, and in base64 if the text had to be
// repaired. Runes that the cut itself split are dropped, not repaired.
func (k *Keeper) Result() (text, raw string, dropped int64) {
	head, tail := k.head, append(append([]byte{}, k.tail[k.at:]...), k.tail[:k.at]...)
	dropped = k.dropped
	if dropped > 0 {
		h, t := len(head), len(tail)
		head, tail = trimEnd(head), trimStart(tail)
		dropped += int64(h - len(head) + t - len(tail))
	}
	all := string(head) + string(tail)
	if utf8.ValidString(all) {
		return all, "", dropped
	}
	// Each invalid byte is replaced by itself, so that counts stay meaningful.
	var b strings.Builder
	for _, r := range all {
		b.WriteRune(r)
	}
	return b.String(), base64.StdEncoding.EncodeToString([]byte(all)), dropped
}

// trimEnd takes an unfinished rune off the end, trimStart a begun one off the start.
func trimEnd(p []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		c := p[len(p)-i]
		if utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return p[:len(p)-i]
			}
			break
		}
	}
	return p
}

func trimStart(p []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(p); i++ {
		if utf8.RuneStart(p[i]) {
			return p[i:]
		}
	}
	return p
}
