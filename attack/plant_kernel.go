package attack

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// plantKernel plants in what the kernel keeps for a user beside files: its
// keyring, and memory that is shared by number. A kernel that does not give one
// of them is no reason to stop.
func (p *planting) plantKernel() {
	if err := p.key(); err != nil {
		p.lack("keyring", err)
	}
	if err := p.segment(); err != nil {
		p.lack("segment", err)
	}
}

// key adds a key that every process of this user may read by its number. It is
// in a keyring of a thread of ours, for then the kernel forgets it when that
// thread ends, however it ends: nobody else could take it away after a kill -9.
func (p *planting) key() error {
	v := newCanary()
	number, over := make(chan int), make(chan struct{})
	var err error
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the key
		var id int
		if id, err = unix.AddKey("user", p.word, []byte(v), unix.KEY_SPEC_THREAD_KEYRING); err == nil {
			const possessorAndUser = 0x3f3f0000
			err = unix.KeyctlSetperm(id, possessorAndUser)
		}
		number <- id
		if err == nil {
			<-over
		}
	}()
	id := <-number
	if err != nil {
		return err
	}
	p.undo = append(p.undo, func() { close(over) })
	p.note("keyring", strconv.Itoa(id), "a key that the kernel keeps for this user", v)
	p.kind("keyring").at = append(p.kind("keyring").at, p.word)
	return nil
}

// segment makes a segment of shared memory and marks it as deleted at once: it
// can be attached by number for as long as this process has it attached.
func (p *planting) segment() error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return err
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	if _, rerr := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	v := newCanary()
	copy(b, v)
	p.undo = append(p.undo, func() { unix.SysvShmDetach(b) })
	p.note("segment", strconv.Itoa(id), "a segment of shared memory", v)
	return nil
}
