package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A sentry is what gVisor's own process holds of a sandbox.
type sentry struct {
	sync    int
	control int   // the socket on which it is asked to begin
	images  []int // of its root and of the agent, for reading
	upper   int   // of the writable layer
	agent   int   // the stream to the host
	given   []int // all of these, and whatever else was open at the start
	group   *os.File

	mu   sync.Mutex
	link *os.File // its wire, if it was given one
	last *net.UnixConn
}

// standAsSentry comes up as gVisor does, and then serves attempts.
func standAsSentry(args []string) {
	os.WriteFile("/proc/self/comm", []byte("berm-sandbox"), 0)
	s := &sentry{sync: -1, control: -1, upper: -1, agent: -1}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		n, err := strconv.Atoi(value)
		switch name {
		case "--start-sync-fd":
			s.sync = n
		case "--controller-fd":
			s.control = n
		case "--gofer-filestore-fds":
			s.upper = n
		case "--stdio-fds":
			if s.agent < 0 && err == nil {
				s.agent = n
			}
		case "--io-fds":
			for _, f := range strings.Split(value, ",") {
				if n, err := strconv.Atoi(f); err == nil {
					s.images = append(s.images, n)
				}
			}
		}
	}
	for fd := 3; fd < 1024; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			s.given = append(s.given, fd)
		}
	}
	// Whoever takes a sentry over has the memory of a program that was started.
	if exe, err := os.Open("/proc/self/exe"); err == nil {
		s.group = exe
	}
	if unix.Listen(s.control, 8) != nil {
		os.Exit(1)
	}
	unix.Write(s.sync, []byte{1})
	unix.Close(s.sync)
	for {
		fd, _, err := unix.Accept4(s.control, unix.SOCK_CLOEXEC)
		if err != nil {
			os.Exit(1)
		}
		go s.answer(os.NewFile(uintptr(fd), "control"))
	}
}

// answer says yes to every call on one connection. The call that brings a wire
// brings its descriptor; the one that starts the guest starts the attempts.
func (s *sentry) answer(f *os.File) {
	fc, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return
	}
	c := fc.(*net.UnixConn)
	s.mu.Lock()
	s.last = c
	s.mu.Unlock()
	var text []byte
	buf, oob := make([]byte, 64<<10), make([]byte, 1024)
	for {
		n, on, _, _, err := c.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 && on == 0 {
			return
		}
		s.take(oob[:on])
		text = append(text, buf[:n]...)
		var call struct {
			Method string `json:"method"`
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		if dec.Decode(&call) != nil {
			continue // the rest is on its way
		}
		text = nil
		c.Write([]byte(`{"success":true,"err":""}`))
		if call.Method == "containerManager.StartRoot" {
			go s.speak()
		}
	}
}

// take keeps the first descriptor that comes.
func (s *sentry) take(oob []byte) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for _, m := range msgs {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			s.mu.Lock()
			if s.link == nil {
				s.link = os.NewFile(uintptr(fd), "link")
			}
			s.mu.Unlock()
		}
	}
}

func (s *sentry) speak() {
	rw := os.NewFile(uintptr(s.agent), "agent")
	(&speaker{rw: rw, attempts: sentryAttempts, inside: s}).serve()
}
