package agent

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// Where the parts of a stacked root lie until they are one: the agent's own
// image, which is the root then, has these directories.
const (
	stackLayers = "/l"   // layers, by number, lowest first
	stackUpper  = "/tmp" // the writable layer
	stackRoot   = "/n"   // what becomes of it
)

// stackMounts are brought along into the new root as they are.
var stackMounts = []string{"/proc", "/sys", "/dev", "/run"}

// Stack puts the root of a guest of several layers together and moves into it.
// It is called once, before anything else, with what the backend gave this
// process as arguments: "stack", the number of layers, and "track" where Changes
// will be asked for. With any others it does nothing.
func Stack(args []string) error {
	if os.Getpid() != 1 || len(args) < 2 || args[0] != "stack" {
		return nil
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 1 {
		return errors.New("no number of layers: " + args[1])
	}
	top := stackLayers + "/" + strconv.Itoa(n-1)
	if err := likeBelow(stackUpper, top); err != nil {
		return err
	}
	lower := make([]byte, 0, 16*n)
	for i := n - 1; i >= 0; i-- {
		lower = append(strconv.AppendInt(append(lower, stackLayers+"/"...), int64(i), 10), ':')
	}
	opts := "lowerdir=" + string(lower[:len(lower)-1])
	if len(args) > 2 && args[2] == "track" {
		if track, err = newTracked(n, opts); err != nil {
			return err
		}
	}
	opts += ",upperdir=" + stackUpper
	if err := syscall.Mount("overlay", stackRoot, "overlay", 0, opts); err != nil {
		return &os.PathError{Op: "mount", Path: stackRoot, Err: err}
	}
	for _, m := range stackMounts {
		if err := bring(m, stackRoot+m); err != nil {
			return err
		}
	}
	if err := syscall.Chdir(stackRoot); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "."); err != nil {
		return &os.PathError{Op: "pivot", Path: stackRoot, Err: err}
	}
	// The old root, with the layers and the agent, lies over the new one now.
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return &os.PathError{Op: "unmount", Path: "/", Err: err}
	}
	if err := syscall.Chdir("/"); err != nil {
		return err
	}
	return dropAdmin(track != nil)
}

// newTracked opens the writable layer, and what lies below it as one.
func newTracked(layers int, opts string) (*tracked, error) {
	below := stackLayers + "/0"
	if layers > 1 {
		below = stackRoot
		if err := syscall.Mount("overlay", below, "overlay", syscall.MS_RDONLY, opts); err != nil {
			return nil, &os.PathError{Op: "mount below", Path: below, Err: err}
		}
		defer syscall.Unmount(below, syscall.MNT_DETACH) // held open by the descriptor
	}
	t := &tracked{}
	var err error
	if t.upper, err = syscall.Open(stackUpper, dirFlags, 0); err == nil {
		t.lower, err = syscall.Open(below, dirFlags, 0)
	}
	return t, err
}

// likeBelow gives the root of the writable layer the owner and the mode of the
// layer below, which it hides.
func likeBelow(upper, below string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(below, &st); err != nil {
		return &os.PathError{Op: "stat", Path: below, Err: err}
	}
	if st.Uid|st.Gid != 0 {
		if err := syscall.Chown(upper, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return syscall.Chmod(upper, st.Mode&0o7777)
}

// bring binds what is mounted at from, and below it, to a directory of the new
// root, which has it but for a layer that says otherwise.
func bring(from, to string) error {
	const how = syscall.MS_BIND | syscall.MS_REC
	err := syscall.Mount(from, to, "", how, "")
	if err == syscall.ENOENT || err == syscall.ENOTDIR || err == syscall.ELOOP {
		syscall.Unlink(to)
		if err = syscall.Mkdir(to, 0o755); err == nil {
			err = syscall.Mount(from, to, "", how, "")
		}
	}
	if err != nil {
		return &os.PathError{Op: "bring", Path: from, Err: err}
	}
	return nil
}
