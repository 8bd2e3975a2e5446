package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of the groups that Berm makes on v2 beside those of sandboxes.
const (
	leafName = "berm-host" // holds the processes of a group that was delegated, Berm's own among them
	baseName = "berm"      // holds the groups of sandboxes, below a group that others use too
)

// findV2 looks for the group below which sandboxes get theirs: our own one, if
// it was delegated or holds only us, or the nearest one above it that hands on
// all controllers that are needed, or else the most of them. A unit that systemd
// would stop for what happens to a sandbox is taken only if nothing else offers
// as much.
func findV2(m cgMount, own string) (*Hierarchy, map[string]error) {
	start := m.below(own)
	if filepath.Base(start) == leafName {
		start = filepath.Dir(start) // where an earlier berm has put us
	}
	var offers []offer
	var first error
	for dir := start; ; dir = filepath.Dir(dir) {
		o, err := assess(m, dir, dir == start)
		if err == nil {
			offers = append(offers, o)
		} else if first == nil {
			first = fmt.Errorf("%s: %w", dir, err)
		}
		if dir == m.point || len(dir) <= 1 {
			break
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int {
		if d := len(b.hands) - len(a.hands); d != 0 || a.stops == b.stops {
			return d
		} else if a.stops {
			return 1
		}
		return -1
	})
	for _, o := range offers {
		h := &Hierarchy{V2: true, parents: map[string]string{"": o.dir}, hands: o.hands, base: o.base}
		if o.base {
			h.parents[""] = filepath.Join(o.dir, baseName)
		}
		if err := o.take(h); err != nil {
			first = errors.Join(first, fmt.Errorf("%s: %w", o.dir, err))
			continue
		}
		missing := map[string]error{}
		for _, c := range needed {
			if !slices.Contains(o.hands, c) {
				missing[c] = fmt.Errorf("%s: %w: it has %s", o.dir, ErrNotDelegated, strings.Join(o.hands, ", "))
			}
		}
		return h, missing
	}
	return &Hierarchy{V2: true}, allMissing(first)
}

// ErrNotDelegated is why a controller is missing that those above have kept.
var ErrNotDelegated = errors.New("the controller is not handed on to this cgroup")

// An offer is a group that may hold those of sandboxes.
type offer struct {
	dir   string
	hands []string // the needed controllers that it can hand on
	base  bool     // others make groups in it too: ours go into one of our own
	leaf  bool     // its processes have to move first
	all   bool     // all of them may be moved, not only our family
	stops bool     // it is ended as a whole when the kernel ends a sandbox for its memory
}

// assess says what a group offers, and changes nothing.
func assess(m cgMount, dir string, own bool) (offer, error) {
	if err := writable(dir); err != nil {
		return offer{}, err
	}
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil && err != unix.ENOENT {
		return offer{}, &os.PathError{Op: "start processes below", Path: dir, Err: err}
	}
	top := false
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); errors.Is(err, os.ErrNotExist) {
		top = true // only the root of all groups has no type; it alone may hold processes and hand controllers on
	}
	o := offer{dir: dir, base: top || !own}
	for _, c := range words(filepath.Join(dir, "cgroup.controllers")) {
		if slices.Contains(needed, c) {
			o.hands = append(o.hands, c)
		}
	}
	slices.Sort(o.hands)
	o.stops = own && stoppable(dir)
	if len(o.hands) == 0 {
		return offer{}, fmt.Errorf("none of %v is delegated to it", needed)
	}
	if top || len(inGroup(dir)) == 0 {
		return o, nil
	}
	if !own {
		return offer{}, errors.New("it holds processes, so it can hand nothing on")
	}
	// The root of a cgroup namespace is a container's, and all in it with it.
	o.leaf, o.all = true, delegated(dir) || dir == m.point
	if !o.all {
		family := []int{os.Getpid(), os.Getppid()}
		for _, p := range inGroup(dir) {
			if !slices.Contains(family, p) && !slices.Contains(family, Parent(p)) {
				return offer{}, fmt.Errorf("process %d of somebody else is in it, and it is not delegated", p)
			}
		}
	}
	return o, nil
}

// take makes the group ready to hold others.
func (o offer) take(h *Hierarchy) error {
	if o.leaf {
		if err := leaf(o.dir); err != nil {
			return err
		}
	}
	if err := hand(o.dir, o.hands); err != nil {
		return err
	}
	if !o.base {
		return nil
	}
	// It must be possible; it is only there while it is needed.
	if err := h.ready(); err != nil {
		return err
	}
	unix.Rmdir(h.parents[""])
	return nil
}

// ready makes the base of a hierarchy that has one. With its own controllers
// handed on it also keeps those above from being taken back: systemd does that to
// a group of its own as soon as none of its units needs them.
func (h *Hierarchy) ready() error {
	if !h.base {
		return nil
	}
	base := h.parents[""]
	if err := hand(filepath.Dir(base), h.hands); err != nil {
		return err
	}
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return hand(base, h.hands)
}

// mkdir makes the directory of a group.
func (h *Hierarchy) mkdir(dir string) error {
	for try := 0; ; try++ {
		err := h.ready()
		if err == nil {
			err = os.Mkdir(dir, 0o755)
		}
		// Another keeper takes an empty base away when its last sandbox ends.
		if !h.base || try == 100 || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
}

// dropBase takes the base of a group away if nothing is in it any more.
func (c *Cgroup) dropBase() {
	if parent := filepath.Dir(c.Dirs[""]); c.V2 && filepath.Base(parent) == baseName {
		unix.Rmdir(parent)
	}
}

// hand has dir hand controllers on to the groups below it.
func hand(dir string, controllers []string) error {
	file := filepath.Join(dir, "cgroup.subtree_control")
	have := words(file)
	if !slices.ContainsFunc(controllers, func(c string) bool { return !slices.Contains(have, c) }) {
		return nil
	}
	return os.WriteFile(file, []byte("+"+strings.Join(controllers, " +")), 0)
}

// leaf moves the processes of dir into a child of it. More may come meanwhile.
func leaf(dir string) error {
	sub := filepath.Join(dir, leafName)
	if err := os.Mkdir(sub, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for range 100 {
		procs := inGroup(dir)
		if len(procs) == 0 {
			return nil
		}
		for _, p := range procs {
			err := os.WriteFile(filepath.Join(sub, "cgroup.procs"), []byte(strconv.Itoa(p)), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d: %w", p, err)
			}
		}
	}
	return errors.New("processes come faster than they can be moved")
}

// delegated says whether systemd has given the group to those in it.
func delegated(dir string) bool {
	var b [2]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, b[:]); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}

// stoppable says whether systemd may end all of a unit because one process below
// it was ended for want of memory, as it does (OOMPolicy=stop) unless the unit was
// delegated. A unit with bounds of its own is none: somebody wants what is started
// in it to stay within them.
func stoppable(dir string) bool {
	if ext := filepath.Ext(dir); ext != ".service" && ext != ".scope" || delegated(dir) {
		return false
	}
	for _, name := range []string{"memory.max", "memory.high", "cpu.max"} {
		if w := words(filepath.Join(dir, name)); len(w) > 0 && w[0] != "max" {
			return false
		}
	}
	return true
}

// inGroup are the processes of a group, the first of all included; 0 is one of
// another pid namespace.
func inGroup(dir string) (out []int) {
	for _, f := range words(filepath.Join(dir, "cgroup.procs")) {
		if pid, err := strconv.Atoi(f); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func words(file string) []string {
	b, _ := os.ReadFile(file)
	return strings.Fields(string(b))
}
