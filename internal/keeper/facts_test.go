package keeper

import (
	"strings"
	"sync"
	"testing"
)

// Those who ask at once what the host can do do not get into each other's way.
func TestFactsAtOnce(t *testing.T) {
	r := serve(t, Config{}, ModeLinger)
	c := r.dial()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			f, err := c.Facts(t.Context(), true)
			if err != nil || f.Groups != "" || f.State != "" {
				t.Errorf("%q %q %v", f.Groups, f.State, err)
			}
			for _, l := range f.Leaks {
				if strings.HasPrefix(l.ID, r.dir) {
					t.Errorf("a trial looks like a leak: %+v", l)
				}
			}
		})
	}
	wg.Wait()
	c.Shutdown(t.Context())
}
