package jail

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
)

// Host uids for sandboxes come from a range that systemd, shadow's subuids and
// distributions leave alone (above 0x70000000), or from the top of what a user
// namespace maps.
const (
	uidBase  = 1_879_100_000
	uidCount = 1 << 18
)

// Lease is the sole use of one host uid (and the gid of the same number).
type Lease struct {
	UID  int
	hold net.Listener
}

// LeaseUID takes a uid that no other sandbox on this host holds. The lease is
// an abstract socket address, so the kernel ends it with this process and no
// file is left.
func LeaseUID() (*Lease, error) {
	base, count := uidBase, uidCount
	if n := mapped(); n < uidBase+uidCount {
		if !ManyUIDs() {
			return nil, errors.New("the user namespace maps too few uids to give each sandbox its own")
		}
		base, count = n/2, n/4
	}
	for range 64 {
		uid := base + rand.IntN(count)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@berm-uid-%d", uid), Net: "unix"})
		if err == nil {
			return &Lease{UID: uid, hold: l}, nil
		}
	}
	return nil, errors.New("no free host uid in 64 tries")
}

// ManyUIDs says whether this user namespace maps enough uids to give each sandbox
// its own. Where it does not, even its root is like any user.
func ManyUIDs() bool { return mapped() >= 4096 }

// Release gives the uid back. No process may have it any more.
func (l *Lease) Release() {
	if l != nil && l.hold != nil {
		l.hold.Close()
	}
}

// mapped is the number of uids from 0 up that this user namespace has.
func mapped() int {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var in, out, n int64
		if _, err := fmt.Sscan(line, &in, &out, &n); err == nil && in == 0 {
			return int(min(n, 1<<32-1))
		}
	}
	return 0
}
