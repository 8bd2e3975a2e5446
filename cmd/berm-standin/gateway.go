package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/egress/wire"
)

// lieAsGateway is the gateway of a sandbox whose sentry is a stand-in too: that
// one's first frame says what to ask the broker for, the last that it is over.
func lieAsGateway() {
	const linkFD, brokerFD, syncFD = 3, 4, 5
	fc, err := net.FileConn(os.NewFile(brokerFD, "broker"))
	if err != nil {
		os.Exit(1)
	}
	g := &liar{raw: fc.(*net.UnixConn)}
	g.wire = wire.NewConn(g.raw)
	unix.Write(syncFD, []byte{1})
	unix.Close(syncFD)
	if _, _, err := g.wire.ReceiveAnswer(); err != nil { // go
		os.Exit(1)
	}
	b := make([]byte, 64<<10)
	ready(linkFD)
	n, err := unix.Read(linkFD, b)
	words := strings.Fields(string(b[:max(n, 0)]))
	if err != nil || len(words) != 3 || words[0] != "standin" {
		os.Exit(1)
	}
	g.allowed(words[2]) // and then, where it may be hung up on
	g.lie(lies[words[1]])
	unix.Write(linkFD, []byte(strings.Join(g.said, "\n")+"\nover"))
	time.Sleep(lifetime * time.Second) // the keeper ends it
}

// ready waits until there is something to read, or long enough.
func ready(fd int) {
	unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
}

// A liar asks a broker for what its policy does not allow.
type liar struct {
	raw  *net.UnixConn
	wire *wire.Conn
	seq  uint64
	said []string
}

// pair asks for a connection to an address as a gateway does: that it begins,
// then what was seen of it.
func pair(to, seen string) []string {
	flows++ // numbers only ever grow
	return []string{fmt.Sprintf(`{"seq":%d,"op":"accept","flow":%[1]d,"to":%[2]q}`, flows, to), fmt.Sprintf(`{"seq":%d,"op":"connect","flow":%[1]d,"to":%[2]q,%[3]s}`, flows, to, seen)}
}

var flows = 1000

// The claims that an allowed name was seen.
const (
	http = `"seen":"http","claim":"example.test","method":"GET","path":"/"`
	tls  = `"seen":"tls","claim":"example.test"`
)

// lies are what it asks for, by the names of attempts.
var lies = map[string][]string{
	"address":  append(pair("203.0.113.66:80", http), pair("[2001:db8:66::66]:443", tls)...),
	"raw":      append(pair("203.0.113.66:443", `"seen":"raw"`), pair("203.0.113.66:80", `"seen":"trusted"`)...),
	"private":  append(pair("10.0.0.1:80", http), pair("192.168.1.1:80", http)...),
	"metadata": append(pair("169.254.169.254:80", http), pair("[::ffff:169.254.169.254]:80", http)...),
	"loopback": append(append(pair("127.0.0.1:80", http), pair("[::1]:80", http)...), pair("0.0.0.0:80", http)...),
	"mapped":   append(pair("[::ffff:203.0.113.66]:80", http), pair("[64:ff9b::203.0.113.66]:80", http)...),
	"udp":      {`{"seq":1,"op":"connect","flow":1001,"seen":"udp","to":"203.0.113.66:53"}`, `{"seq":2,"op":"connect","flow":1002,"seen":"udp","to":"203.0.113.66:443","claim":"example.test"}`},
	"port":     append(pair("203.0.113.10:22", http), pair("203.0.113.10:25", tls)...),
	"names":    {`{"seq":1,"op":"name","name":"denied.test","type":1}`, `{"seq":2,"op":"name","name":"secret.of.the.host.denied.test","type":16}`, `{"seq":3,"op":"name","name":"example.test.denied.test","type":28}`},
	"skip":     {`{"seq":1,"op":"connect","flow":9,"to":"203.0.113.66:80",` + http + `}`, `{"seq":2,"op":"request","flow":9,"claim":"example.test","method":"GET","path":"/"}`},
	"forged":   {`{"op":"denied","kind":"x","reason":"\u001b[2J","name":"\u001b[2J","count":-1}`, `{"op":"dial","seq":1,"to":"203.0.113.66:80"}`, `{"seq":`, "\x00\xff"},
	"flood":    flood(),
}

func flood() (out []string) {
	for n := range 4000 {
		out = append(out, fmt.Sprintf(`{"seq":%d,"op":"accept","flow":%d,"to":"203.0.%d.%d:80"}`, 2000+n, 2000+n, n>>8, n&255))
	}
	return out
}

// lie asks, and uses every connection that it is given.
func (g *liar) lie(asks []string) {
	go func() {
		for _, a := range asks {
			if _, err := g.raw.Write([]byte(a)); err != nil {
				return
			}
		}
		g.raw.Write([]byte(`{"seq":999999,"op":"name","name":"example.test","type":1}`)) // the last
	}()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		g.raw.SetReadDeadline(end)
		a, fd, err := g.wire.ReceiveAnswer()
		if err != nil || a.Seq == 999999 {
			break
		}
		if len(g.said) < 20 {
			b, _ := json.Marshal(a)
			g.said = append(g.said, string(b))
		}
		if fd >= 0 {
			g.said = append(g.said, "a connection came")
			unix.Write(fd, []byte("GET /lie HTTP/1.1\r\nHost: example.test\r\n\r\n"))
		}
	}
	g.raw.SetReadDeadline(time.Time{})
}

// allowed asks for what the policy does allow, and gets it.
func (g *liar) allowed(nonce string) {
	for i, kind := range []uint16{1, 28} {
		at, _, err := g.ask(wire.Ask{Op: wire.OpName, Name: "example.test", Type: kind})
		if err != nil || len(at.Addrs) == 0 {
			g.said = append(g.said, fmt.Sprintf("example.test: %+v %v", at, err))
			continue
		}
		flow := uint64(1 + i)
		to := netip.AddrPortFrom(at.Addrs[0], 8080)
		r, fd, err := g.ask(wire.Ask{Op: wire.OpAccept, Flow: flow, To: to})
		if err == nil && fd < 0 {
			r, fd, err = g.ask(wire.Ask{Op: wire.OpConnect, Flow: flow, To: to, Seen: "http", Claim: "example.test", Method: "GET", Path: "/ok-" + nonce})
		}
		g.said = append(g.said, fmt.Sprintf("%d %v %.60s", fd, err, r.Reason+r.Text))
		if fd >= 0 {
			unix.Write(fd, []byte("GET /ok-"+nonce+" HTTP/1.1\r\nHost: example.test:8080\r\nConnection: close\r\n\r\n"))
			time.Sleep(100 * time.Millisecond)
			unix.Close(fd)
		}
	}
}

func (g *liar) ask(a wire.Ask) (wire.Answer, int, error) {
	g.seq++
	a.Seq = 2_000_000 + g.seq
	if err := g.wire.SendAsk(a); err != nil {
		return wire.Answer{}, -1, err
	}
	g.raw.SetReadDeadline(time.Now().Add(3 * time.Second))
	for {
		r, fd, err := g.wire.ReceiveAnswer()
		if err != nil || r.Seq == a.Seq {
			return r, fd, err
		}
	}
}

// haveLies is the attempt of the sentry: it has its gateway ask for what is named.
func haveLies(t *try) {
	s := t.s.inside
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l == nil || len(t.args) != 1 {
		t.say("no link")
		return
	}
	fd := int(l.Fd())
	t.note("f", unix.Sendto(fd, []byte("standin "+t.args[0]+" "+t.nonce), 0, nil))
	ready(fd)
	b := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, b, 0)
	t.note("a", err)
	t.spill(b[:max(n, 0)])
}
