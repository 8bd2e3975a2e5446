package main

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// With O_DIRECTORY gVisor follows a link in the last place although O_NOFOLLOW
// forbids it; Linux fails with ENOTDIR. Whoever walks a tree that somebody else
// changes meanwhile relies on that: the agent, which is root, and every os.Root.

// keepNoFollow makes opens with both flags hold to both.
func keepNoFollow() {
	for _, t := range []*kernel.SyscallTable{syscalls.AMD64, syscalls.ARM64} {
		for no, sc := range t.Table {
			flags := map[string]int{"open": 1, "openat": 2}[sc.Name]
			if flags == 0 {
				continue
			}
			sc.Fn = strict(sc.Fn, flags)
			t.Table[no] = sc
		}
		t.Init()
	}
}

// strict is open with its flags in the argument of that number.
func strict(open kernel.SyscallFn, at int) kernel.SyscallFn {
	const both = linux.O_DIRECTORY | linux.O_NOFOLLOW
	return func(t *kernel.Task, no uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		flags := args[at].Uint()
		if flags&both != both || flags&(linux.O_PATH|linux.O_TMPFILE&^linux.O_DIRECTORY) != 0 {
			return open(t, no, args)
		}
		// What the name is, without opening it: this does hold to both.
		args[at].Value = uintptr(both | linux.O_PATH | linux.O_CLOEXEC)
		n, _, err := open(t, no, args)
		if err != nil {
			return 0, nil, err
		}
		named := t.FDTable().Remove(t, int32(n))
		if named == nil { // another thread has closed it
			return 0, nil, linuxerr.EBADF
		}
		defer named.DecRef(t)
		at := named.VirtualDentry()
		dir, err := t.Kernel().VFS().OpenAt(t, t.Credentials(), &vfs.PathOperation{Root: at, Start: at},
			&vfs.OpenOptions{Flags: flags | linux.O_LARGEFILE})
		if err != nil {
			return 0, nil, err
		}
		defer dir.DecRef(t)
		fd, err := t.NewFDFrom(0, dir, kernel.FDFlags{CloseOnExec: flags&linux.O_CLOEXEC != 0})
		return uintptr(fd), nil, err
	}
}
