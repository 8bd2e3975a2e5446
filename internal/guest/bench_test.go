package guest

import (
	"math/rand"
	"testing"
)

// BenchmarkSplit is the price of a wire that can be joined anywhere.
func BenchmarkSplit(b *testing.B) {
	random := make([]byte, MaxChunk)
	r := rand.New(rand.NewSource(1))
	r.Read(random)
	text := make([]byte, MaxChunk)
	for i := range text {
		text[i] = "the quick brown fox "[i%20]
	}
	for name, data := range map[string][]byte{"random": random, "text": text} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				splitAt(data)
			}
		})
	}
}
