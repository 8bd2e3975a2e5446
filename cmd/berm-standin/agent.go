package main

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/guest"
)

// standAsAgent is PID 1 of a guest; descriptor 0 is the stream to the host.
func standAsAgent() {
	unix.Chdir("/")
	s := &speaker{rw: os.NewFile(0, "host"), attempts: agentAttempts}
	s.serve()
}

// agentAttempts are ways to speak the guest protocol wrongly.
var agentAttempts = map[string]func(*try){
	"nothing":      func(*try) {},
	"long-frame":   longFrame,
	"half-frame":   halfFrame,
	"nobody":       answerNobody,
	"flood":        floodOutput,
	"crumbs":       floodCrumbs,
	"credit":       grantTooMuch,
	"stop":         stopTwice,
	"greet":        greetAgain,
	"epoch":        otherEpoch,
	"marker":       markAgain,
	"noise":        makeNoise,
	"sightings":    seeTooMuch,
	"boast":        boast,
	"no-exit":      impossibleExit,
	"text":         hostileText,
	"after":        speakAfterwards,
	"gap":          leaveGap,
	"list-paths":   func(t *try) { t.s.content = short },
	"list-endless": func(t *try) { t.s.names = namesWithoutEnd },
	"file-endless": func(t *try) { t.s.content = endless },
	"file-torn":    func(t *try) { t.s.content, t.s.torn = short, true },
}

// frame sends any frame on the try's own stream.
func (t *try) frame(kind byte, body []byte) error {
	return t.s.raw(guest.AppendFrame(nil, t.s.epoch, t.stream, kind, body))
}

func longFrame(t *try) {
	t.begun()
	var h [guest.HeaderSize]byte
	guest.PutHeader(h[:], t.s.epoch, t.stream, guest.KindData, 1<<31-1)
	t.s.raw(append(h[:], bytes.Repeat([]byte("x"), 1<<20)...))
	time.Sleep(time.Second)
}

// halfFrame promises more than it sends, and waits.
func halfFrame(t *try) {
	t.begun()
	var h [guest.HeaderSize]byte
	guest.PutHeader(h[:], t.s.epoch, t.stream, guest.KindData, 200<<10)
	writing.Lock() // for good: whatever came next would be taken for the rest
	t.s.rw.Write(append(h[:], "half"...))
	time.Sleep(6 * time.Second)
	os.Exit(1) // it was long enough
}

func answerNobody(t *try) {
	t.begun()
	for _, stream := range []uint32{0, t.stream + 1, t.stream + 1000, 1<<32 - 1} {
		r := guest.Reply{Body: []byte("nobody asked")}
		t.s.raw(guest.AppendFrame(nil, t.s.epoch, stream, guest.KindReply, r.Append(nil)))
	}
}

// maxFlood bounds what is sent beyond what a stream may carry.
const maxFlood = 256 << 20

func floodOutput(t *try) {
	t.begun()
	b := bytes.Repeat([]byte("flood\n"), 20<<10)
	for n := 0; n < maxFlood; n += len(b) {
		if t.frame(guest.KindData, b) != nil {
			return
		}
	}
}

// floodCrumbs sends frames of one byte and of none, of which each costs its
// receiver more than it carries.
func floodCrumbs(t *try) {
	t.begun()
	one := guest.AppendFrame(guest.AppendFrame(nil, t.s.epoch, t.stream, guest.KindData, []byte("x")), t.s.epoch, t.stream, guest.KindDataErr, nil)
	b := bytes.Repeat(one, 4096)
	for range 400 {
		if t.s.raw(b) != nil {
			return
		}
	}
}

func grantTooMuch(t *try) {
	t.begun()
	for range 64 {
		t.frame(guest.KindCredit, guest.AppendCredit(nil, 1<<30))
		t.frame(guest.KindCredit, bytes.Repeat([]byte{0xff}, 10))
	}
}

func stopTwice(t *try) {
	t.begun()
	t.frame(guest.KindStop, nil)
	t.frame(guest.KindStop, nil)
	t.frame(guest.KindEnd, nil)
}

// greetAgain greets once more, as an agent of another version.
func greetAgain(t *try) {
	t.begun()
	for _, v := range []int{guest.Version, guest.Version + 1, -1, 1 << 40} {
		h := guest.Hello{Version: v, Agent: "another"}
		t.s.raw(guest.AppendFrame(nil, t.s.epoch, 0, guest.KindHello, h.Append(nil)))
	}
}

func otherEpoch(t *try) {
	t.begun()
	t.s.raw(guest.AppendFrame(nil, t.s.epoch+1, t.stream, guest.KindData, []byte("of another epoch\n")))
}

// markAgain echoes markers that nobody sent, so that what follows would be taken
// for a fresh attachment.
func markAgain(t *try) {
	t.begun()
	for n := range uint64(16) {
		t.s.raw(guest.AppendMarker(nil, t.s.epoch, n))
	}
}

func makeNoise(t *try) {
	t.begun()
	b := make([]byte, 1<<20)
	for range 16 {
		unix.Getrandom(b, 0)
		if t.s.raw(b) != nil {
			return
		}
	}
}

func seeTooMuch(t *try) {
	t.begun()
	for n := range int64(20000) {
		e := guest.Exit{PidsPeak: n, MemoryPeak: n << 40, Caps: []string{guest.CapMemory, guest.CapProcesses, guest.CapDisk}}
		if t.frame(guest.KindSeen, e.Append(nil)) != nil {
			return
		}
	}
}

// boast tells figures that nothing can have reached.
func boast(t *try) {
	t.begun()
	e := guest.Exit{PidsPeak: 1 << 60, MemoryPeak: 1 << 60, DiskPeak: 1 << 60, ElapsedNanos: 1 << 60}
	t.frame(guest.KindSeen, e.Append(nil))
	t.say("ended %s", t.nonce)
	r := guest.Reply{Body: e.Append(nil)}
	t.frame(guest.KindReply, r.Append(nil))
	t.replied = true
}

// impossibleExit ends in a way that no process can.
func impossibleExit(t *try) {
	t.begun()
	e := guest.Exit{Code: 1 << 30, Signal: 4096, Caps: []string{"root", "memory", "memory"}, EndedBy: "nobody"}
	r := guest.Reply{Body: e.Append(nil)}
	t.frame(guest.KindReply, r.Append(nil))
	t.replied = true
}

// hostileText puts into a reason what would steer a terminal, break a line of a
// log, or is no text.
func hostileText(t *try) {
	t.begun()
	t.say("ended %s", t.nonce)
	text := "\x1b]0;standin\x07\x1b[2J\r\n{\"event\":\"forged\"}\n\xff\xfe\xc0\xaf" + string(bytes.Repeat([]byte("A"), 8<<10))
	e := guest.Exit{NotStarted: text, Errno: 13}
	r := guest.Reply{Errno: 5, Text: text, Body: e.Append(nil)}
	t.frame(guest.KindReply, r.Append(nil))
	t.replied = true
}

// speakAfterwards goes on after its own end.
func speakAfterwards(t *try) {
	t.begun()
	t.say("ended %s", t.nonce)
	var e guest.Exit
	r := guest.Reply{Body: e.Append(nil)}
	for range 3 {
		t.frame(guest.KindReply, r.Append(nil))
	}
	t.frame(guest.KindData, []byte("after the end\n"))
	t.replied = true
}

func leaveGap(t *try) {
	t.begun()
	t.frame(guest.KindGap, guest.AppendCredit(nil, 1<<30))
	t.frame(guest.KindGap, bytes.Repeat([]byte{0xff}, 9))
}
