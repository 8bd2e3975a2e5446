package main

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/guest"
)

// rubbish are things that nobody should say to anybody.
func rubbish() [][]byte {
	return [][]byte{
		{0}, bytes.Repeat([]byte{0xff}, 4096), []byte("{"), []byte(strings.Repeat(`{"seq":`, 2000)), []byte(strings.Repeat("[", 60000)),
		[]byte(`{"seq":1}`), []byte(`{"exited":{"id":"x","code":0}}`), []byte(`{"success":false,"err":"\u001b[2J"}`), []byte(`{"success":true}{"success":true}`),
		[]byte("\x00\x01\x02\x03\xff\xfe"), []byte(`{"op":"launch"}`), []byte(`{"op":"shutdown"}`), bytes.Repeat([]byte(`{"err":"x"}`), 5000),
	}
}

// babbleControl speaks unasked on the connection over which it is steered.
func babbleControl(t *try) {
	s := t.s.inside
	s.mu.Lock()
	c := s.last
	s.mu.Unlock()
	for _, b := range rubbish() {
		_, err := c.Write(b)
		t.note("control", err)
	}
}

// babbleAgent breaks off its own stream in the middle of a frame that promises
// more than there may be.
func babbleAgent(t *try) {
	t.begun()
	var h [guest.HeaderSize]byte
	guest.PutHeader(h[:], t.s.epoch, t.stream, guest.KindData, 1<<31-1)
	t.s.raw(append(h[:], bytes.Repeat([]byte("x"), 1<<20)...))
	for range 64 {
		for _, b := range rubbish() {
			if t.s.raw(b) != nil {
				return
			}
		}
	}
}

// babbleLink sends frames that are none.
func babbleLink(t *try) {
	s := t.s.inside
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil {
		t.say("no link")
		return
	}
	fd := int(l.Fd())
	for i := range 2000 {
		b := rubbish()[i%13]
		if err := unix.Sendto(fd, b[:min(len(b), 60000)], unix.MSG_DONTWAIT, nil); err != nil && i < 3 {
			t.note("frame", err)
		}
	}
}

// sendDescriptors passes descriptors of memory that is named after the case to
// whoever reads what it says.
func sendDescriptors(t *try) {
	fd, err := unix.MemfdCreate("berm-"+t.nonce, 0)
	t.note("memory", err)
	if err != nil {
		return
	}
	rights := unix.UnixRights(fd, fd, fd, fd)
	unix.Close(t.s.inside.upper) // one less of its own
	s := t.s.inside
	s.mu.Lock()
	c := s.last
	s.mu.Unlock()
	for range 64 {
		_, _, err = c.WriteMsgUnix([]byte(" "), rights, nil)
	}
	t.note("to who steers it", err)
	// A frame that is one, so that it is read.
	frame := guest.AppendFrame(nil, t.s.epoch, t.stream, guest.KindDataErr, []byte("with descriptors\n"))
	writing.Lock()
	for range 64 {
		err = unix.Sendmsg(s.agent, frame, rights, nil, 0)
	}
	writing.Unlock()
	t.note("to who reads the stream", err)
	unix.Close(fd)
}

// babbleSockets speaks on every socket that it was born with and that is none of
// those it must have.
func babbleSockets(t *try) {
	s := t.s.inside
	var own, st unix.Stat_t
	unix.Fstat(s.agent, &own) // it has two descriptors of that one
	for _, fd := range s.given {
		if fd == s.control || fd == s.sync {
			continue
		}
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Ino == own.Ino {
			continue
		}
		t.say("socket %d", fd)
		b := make([]byte, 64<<10)
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT|unix.MSG_PEEK)
		t.note(fmt.Sprintf("read %d bytes of %d", n, fd), err)
		for _, r := range rubbish() {
			unix.Sendto(fd, r, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
		}
	}
}
