package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// A try is one attempt. Its output goes to whoever asked for it; what counts is
// what becomes of the canaries on the host and what is seen of this process from
// outside while it lingers.
type try struct {
	s      *speaker
	stream uint32
	name   string
	args   []string // of the attempt
	nonce  string
	at     facts
	said   []byte
	now    bool // what it says goes out at once

	replied bool // it has ended itself
}

// facts are places and addresses on the host: what a program of the suite is
// told, see target in package attack.
type facts struct {
	TmpFile    string `json:"tmpfile"`
	VarTmpFile string `json:"vartmpfile"`
	Home       string `json:"home"`
	HolderPID  int    `json:"holder_pid"`
	UnixPath   string `json:"unix_path"`
	Abstract   string `json:"abstract"`
	TCP4       int    `json:"tcp4"`
	TCP6       int    `json:"tcp6"`
	UDP4       int    `json:"udp4"`
}

// newTry takes the arguments of an attempt apart: its name, arguments of its own,
// the number of the case, facts.
func newTry(s *speaker, stream uint32, args []string) *try {
	n := len(args)
	t := &try{s: s, stream: stream, name: args[0], args: args[1 : n-2], nonce: args[n-2]}
	json.Unmarshal([]byte(args[n-1]), &t.at)
	return t
}

// linger is how long an attempt stays as it is, to be looked at.
const linger = 250 * time.Millisecond

// run makes the attempt, says then that it began, because the host looks at this
// process at that moment, and that it ended.
func (t *try) run(do func(*try)) {
	do(t)
	if t.replied {
		return
	}
	t.begun()
	t.say("ended %s", t.nonce)
}

// begun says the number of the case, once; what an attempt may not survive says
// it itself before.
func (t *try) begun() {
	if t.now {
		return
	}
	t.now = true
	t.out([]byte("began " + t.nonce + "\n"))
	t.out(t.said)
	t.said = nil
	time.Sleep(linger)
}

// say notes what came of something.
func (t *try) say(format string, args ...any) { t.spill([]byte(fmt.Sprintf(format, args...) + "\n")) }

// maxSaid bounds the output of an attempt: less than the window of its stream.
const maxSaid = 256 << 10

// spill is output as it is.
func (t *try) spill(b []byte) {
	if t.now {
		t.out(b)
	} else if len(t.said)+len(b) < maxSaid {
		t.said = append(t.said, b...)
	}
}

func (t *try) out(b []byte) {
	for len(b) > 0 {
		n := min(len(b), 32<<10)
		t.s.send(t.stream, guest.KindData, b[:n])
		b = b[n:]
	}
}

// note says whether something could be done.
func (t *try) note(what string, err error) {
	if err == nil {
		t.say("%s: done", what)
	} else {
		t.say("%s: %.120v", what, err)
	}
}
