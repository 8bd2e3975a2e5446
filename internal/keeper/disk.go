package keeper

import "time"

// gVisor gives the writable layer a size, and a guest that reaches it is told
// that there is no space. But the file behind the layer is open in gVisor's own
// process, for which the size is no wall: somebody who had taken that process over
// could fill the host's disk. So the keeper looks at the file too, and ends a
// sandbox whose file has grown to what no layer of that size can take. Between two
// looks a disk can be filled, and is free again when the sandbox has ended.

// diskEvery is the time between two looks.
const diskEvery = 500 * time.Millisecond

// overfull is more than the file of a layer of n bytes takes on any file system:
// some reserve as much again while a file grows.
func overfull(n int64) int64 { return 2*n + 64<<20 }

// watchDisk ends s when its writable layer has more than most bytes, or when that
// cannot be seen.
func (s *sandbox) watchDisk(most int64, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-tick.C:
		}
		s.hold.Lock()
		taken, known := allocated(s.upper)
		released := s.released
		s.hold.Unlock()
		if !released && (!known || taken > most) {
			s.end(CauseDisk)
			return
		}
	}
}
