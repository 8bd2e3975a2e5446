package attack

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// keyLife is after how many seconds the kernel forgets the key by itself, if
// nobody could take it away.
const keyLife = 20 * 60

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

// key adds a key to the keyring of this user, which all processes of theirs
// share, and which they may read.
func (p *planting) key() error {
	v := newCanary()
	id, err := unix.AddKey("user", p.word, []byte(v), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		return err
	}
	forget := func() { unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0) }
	const possessorAndUser = 0x3f3f0000
	err = unix.KeyctlSetperm(id, possessorAndUser)
	if err == nil {
		_, err = unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, id, keyLife, 0, 0)
	}
	if err != nil {
		forget()
		return err
	}
	p.undo = append(p.undo, forget)
	p.note("keyring", strconv.Itoa(id), "a key in the user's keyring", v)
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
