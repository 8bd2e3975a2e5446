package image

import (
	"testing"
)

func BenchmarkResolveHostHit(b *testing.B) {
	s := Open(b.TempDir())
	img, err := s.Resolve(b.Context(), Host, Options{})
	if err != nil {
		b.Skip(err)
	}
	b.Logf("%+v", img)
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), Host, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
