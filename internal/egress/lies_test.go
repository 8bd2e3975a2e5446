package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// canaries listen where nobody may come.
type canaries struct {
	tcp4, other4, tcp6, udp netip.AddrPort
	seen                    atomic.Int64
}

func newCanaries(t *testing.T) *canaries {
	t.Helper()
	c := &canaries{}
	touched := func(x net.Conn) { c.seen.Add(1) }
	c.tcp4 = newServer(t, "127.0.0.1:0", touched).at
	c.other4 = newServer(t, fmt.Sprintf("127.0.0.2:%d", c.tcp4.Port()), touched).at
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		l.Close()
		c.tcp6 = newServer(t, "[::1]:0", touched).at
	} else {
		c.tcp6 = netip.AddrPortFrom(netip.IPv6Loopback(), c.tcp4.Port())
	}
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	c.udp = p.LocalAddr().(*net.UDPAddr).AddrPort()
	go func() {
		for {
			if _, _, err := p.ReadFrom(make([]byte, 10)); err != nil {
				return
			}
			c.seen.Add(1)
		}
	}()
	return c
}

// TestLies: whatever a gateway says, nothing is reached but what the policy
// allows. The server that it allows is there, so that a lie has something to
// lean on.
func TestLies(t *testing.T) {
	c := newCanaries(t)
	ok := newServer(t, "127.0.0.1:0", echo)
	open := func(flow uint64) []string {
		return []string{
			fmt.Sprintf(`{"seq":1,"op":"accept","flow":%d,"to":"%s"}`, flow, ok.at),
			fmt.Sprintf(`{"seq":2,"op":"connect","flow":%d,"seen":"tls","claim":"one.test"}`, flow),
		}
	}
	try := func(to string, seen string) []string {
		return []string{
			fmt.Sprintf(`{"seq":1,"op":"accept","flow":1,"to":"%s"}`, to),
			fmt.Sprintf(`{"seq":2,"op":"connect","flow":1,"to":"%s",%s}`, to, seen),
		}
	}
	tls := `"seen":"tls","claim":"one.test"`
	p4 := c.tcp4.Port()
	lies := map[string][]string{
		"an address that was never handed out": try(c.tcp4.String(), tls),
		"another loopback address":             try(c.other4.String(), tls),
		"IPv6 loopback":                        try(c.tcp6.String(), tls),
		"the name of an allowed one":           try(c.tcp4.String(), `"seen":"http","claim":"one.test","method":"GET","path":"/"`),
		"raw":                                  try(c.tcp4.String(), `"seen":"raw"`),
		"nothing seen":                         try(c.tcp4.String(), `"seen":""`),
		"a word that is none":                  try(c.tcp4.String(), `"seen":"trusted"`),
		"names of others":                      try(c.tcp4.String(), `"seen":"tls","claim":"two.test"`),
		"the name in capitals with a dot":      try(c.tcp4.String(), `"seen":"tls","claim":"ONE.TEST."`),
		"an address mapped into IPv6":          try(fmt.Sprintf("[::ffff:127.0.0.1]:%d", p4), tls),
		"an allowed address mapped into IPv6":  try(fmt.Sprintf("[::ffff:127.0.0.1]:%d", ok.at.Port()), tls),
		"an address compatible with IPv4":      try(fmt.Sprintf("[::127.0.0.1]:%d", p4), tls),
		"NAT64":                                try(fmt.Sprintf("[64:ff9b::127.0.0.1]:%d", p4), tls),
		"a zone":                               try(fmt.Sprintf("[fe80::1%%lo]:%d", p4), tls),
		"loopback with a zone":                 try(fmt.Sprintf("[::1%%lo]:%d", c.tcp6.Port()), tls),
		"unspecified":                          try(fmt.Sprintf("0.0.0.0:%d", p4), tls),
		"unspecified, IPv6":                    try(fmt.Sprintf("[::]:%d", c.tcp6.Port()), tls),
		"port 0":                               try("127.0.0.1:0", tls),
		"no address":                           {`{"seq":1,"op":"accept","flow":1}`, `{"seq":2,"op":"connect","flow":1,` + tls + `}`},
		"the gateway's own address":            try("192.0.0.1:53", tls),
		"the metadata address":                 try("169.254.169.254:80", tls),
		"UDP to a canary":                      {fmt.Sprintf(`{"seq":1,"op":"connect","flow":1,"seen":"udp","to":"%s"}`, c.udp)},
		"UDP to the allowed server":            {fmt.Sprintf(`{"seq":1,"op":"connect","flow":1,"seen":"udp","to":"%s"}`, ok.at)},
		"UDP on a TCP flow":                    {open(1)[0], fmt.Sprintf(`{"seq":2,"op":"connect","flow":1,"seen":"udp","to":"%s"}`, c.udp)},
		"connect without accept":               {fmt.Sprintf(`{"seq":1,"op":"connect","flow":1,"to":"%s",%s}`, c.tcp4, tls)},
		"connect to another than accepted":     {open(1)[0], fmt.Sprintf(`{"seq":2,"op":"connect","flow":1,"to":"%s",%s}`, c.tcp4, tls)},
		"connected twice":                      append(open(1), `{"seq":3,"op":"connect","flow":1,"seen":"raw"}`),
		"a flow of number 0":                   open(0),
		"accepted twice": {open(1)[0], fmt.Sprintf(`{"seq":2,"op":"accept","flow":1,"to":"%s"}`, c.tcp4),
			fmt.Sprintf(`{"seq":3,"op":"connect","flow":1,"to":"%s",%s}`, c.tcp4, tls)},
		"a flow that is used again": {open(1)[0], `{"op":"close","flow":1}`, fmt.Sprintf(`{"seq":2,"op":"accept","flow":1,"to":"%s"}`, ok.at),
			`{"seq":3,"op":"connect","flow":1,` + tls + `}`},
		"a request without a flow":  {`{"seq":1,"op":"request","flow":9,"claim":"one.test","method":"GET","path":"/"}`},
		"a request before connect":  {open(1)[0], `{"seq":2,"op":"request","flow":1,"claim":"one.test","method":"GET","path":"/"}`},
		"a request on what is TLS":  append(open(1), `{"seq":3,"op":"request","flow":1,"claim":"one.test","method":"GET","path":"/"}`),
		"a name that is an address": {`{"seq":1,"op":"name","name":"127.0.0.1","type":1}`, `{"seq":2,"op":"name","name":"127.0.0.1.","type":255}`},
		"a name that is denied":     {`{"seq":1,"op":"name","name":"canary.test","type":1}`, try(c.tcp4.String(), tls)[0]},
		"a name that leads home":    {`{"seq":1,"op":"name","name":"home.test","type":1}`, try(c.other4.String(), `"seen":"tls","claim":"home.test"`)[0]},
		"a close of nothing":        {`{"op":"close","flow":77}`, `{"op":"close"}`},
		"reports of nothing":        {`{"op":"denied","kind":"` + strings.Repeat("x", 30) + `","reason":"\u001b[2J","name":"\u001b[2J"}`},
		"a huge message":            {`{"op":"name","seq":1,"name":"` + strings.Repeat("x", wire.MaxMessage) + `"}`},
		"a long path":               {`{"op":"request","seq":1,"path":"` + strings.Repeat("/x", wire.MaxPath) + `"}`},
		"an op that is none":        {`{"op":"dial","seq":1,"to":"` + c.tcp4.String() + `"}`},
		"a field that is none":      {`{"op":"accept","seq":1,"flow":1,"to":"` + ok.at.String() + `","dial":"` + c.tcp4.String() + `"}`},
		"a negative count":          {`{"op":"denied","kind":"icmp","reason":"icmp","count":-5}`},
		"not JSON":                  {"\x00\x01\x02"},
		"JSON twice":                {`{"op":"close","flow":1}{"op":"close","flow":2}`},
		"an address in hex":         try("0x7f.0.0.1:80", tls),
		"an address as a number":    try("2130706433:80", tls),
		"an address in octal":       try("0177.0.0.1:80", tls),
		"the last flow number":      append(open(1<<64-1), fmt.Sprintf(`{"seq":3,"op":"accept","flow":1,"to":"%s"}`, ok.at), `{"seq":4,"op":"connect","flow":1,`+tls+`}`),
	}
	// A preset lets TLS and HTTP to one name reach the gate canary, so that lies get
	// as far as they can: they are let begin, and must not be dialled.
	gate := c.other4.String()
	for what, seen := range map[string]string{
		"raw": `"seen":"raw"`, "nothing": `"seen":""`, "no name in TLS": `"seen":"tls"`, "another name in TLS": tls,
		"another name":              `"seen":"http","claim":"one.test","method":"GET","path":"/ok"`,
		"no name":                   `"seen":"http","method":"GET","path":"/ok"`,
		"hidden":                    `"seen":"tls","claim":"gate.test","hidden":true`,
		"a name below":              `"seen":"tls","claim":"x.gate.test"`,
		"a name that was not asked": `"seen":"tls","claim":"other.test"`,
		"UDP":                       `"seen":"udp","claim":"gate.test"`,
	} {
		lies["let begin: "+what] = append([]string{`{"seq":9,"op":"name","name":"gate.test","type":1}`}, try(gate, seen)...)
	}
	begin := []string{`{"seq":9,"op":"name","name":"gate.test","type":1}`, try(gate, tls)[0]}
	lies["let begin: connect to another"] = append(begin[:2:2], fmt.Sprintf(`{"seq":3,"op":"connect","flow":1,"to":"%s",%s}`, ok.at, tls))
	lies["let begin: a request"] = append(begin[:2:2], `{"seq":3,"op":"request","flow":1,"claim":"gate.test","method":"GET","path":"/"}`)
	lies["let begin: UDP"] = append(begin[:2:2], fmt.Sprintf(`{"seq":3,"op":"connect","flow":1,"seen":"udp","to":"%s"}`, c.udp))
	lies["let begin: accepted twice"] = append(begin[:2:2], fmt.Sprintf(`{"seq":3,"op":"accept","flow":1,"to":"%s"}`, ok.at))
	reaches := map[string]bool{} // what is allowed
	for _, what := range []string{"a request on what is TLS", "the last flow number", "connected twice", "UDP on a TCP flow",
		"connect to another than accepted", "accepted twice", "a request before connect", "a flow that is used again"} {
		reaches[what] = true
	}
	for what, messages := range lies {
		t.Run(what, func(t *testing.T) {
			hosts := "127.0.0.1 one.test canary.test\n127.0.0.2 home.test gate.test other.test\n"
			doc := fmt.Sprintf(`[{"allow":"one.test:%[1]d"},{"allow":"home.test:1"},{"allow":"127.0.0.1/32:%[1]d"},{"allow":"preset:gate"}]`, ok.at.Port())
			p, err := policy.ParseEgress(json.RawMessage(doc), time.Now(), func(string) (policy.Preset, error) {
				return policy.Preset{Hosts: []string{fmt.Sprintf("gate.test:%d", p4), fmt.Sprintf("other.test:%d", p4)}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, &Files{Hosts: []byte(hosts)}, Link{Policy: p})
			g := b.gateway()
			for _, m := range messages {
				if _, err := g.raw.Write([]byte(m)); err != nil {
					break // it was hung up on
				}
			}
			g.raw.Write([]byte(`{"seq":999,"op":"name","name":"one.test","type":1}`))
			due := map[uint64]int{999: 1} // one answer to each, unless it hangs up
			for _, m := range messages {
				var a struct{ Seq uint64 }
				if json.Unmarshal([]byte(m), &a) == nil && a.Seq > 0 {
					due[a.Seq]++
				}
			}
			reached := 0
			for len(due) > 0 {
				a, fd, err := g.wire.ReceiveAnswer()
				if err == io.EOF || err != nil && strings.Contains(err.Error(), "reset") {
					break // hung up on: fine
				} else if err != nil {
					t.Fatal(err)
				}
				conn := g.conn(fd)
				if conn != nil {
					reached++
				}
				if conn != nil && (!reaches[what] || reached > 1 || conn.RemoteAddr().String() != ok.at.String()) {
					t.Errorf("%+v came with a connection to %s", a, conn.RemoteAddr())
				}
				if due[a.Seq] == 0 {
					t.Errorf("nobody asked for %+v", a)
				}
				if due[a.Seq]--; due[a.Seq] == 0 {
					delete(due, a.Seq)
				}
				if a.Seq == 999 && (!a.Allow || len(a.Addrs) != 1) {
					t.Errorf("the truth is not answered any more: %+v", a)
				}
			}
			again := b.gateway() // whatever became of that one
			if a := again.name("one.test", dns.TypeA); !a.Allow {
				t.Errorf("afterwards: %+v", a)
			}
		})
	}
	if n := c.seen.Load(); n != 0 {
		t.Errorf("canaries were reached %d times", n)
	}
	// The canaries do sing: with a policy that allows one it is reached.
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"127.0.0.1/32"}]`)})
	if a, conn := b.gateway().connect(c.tcp4, raw); conn == nil {
		t.Fatalf("%+v", a)
	}
	eventually(t, "the canary is reached", func() bool { return c.seen.Load() == 1 })
}

// TestFlood: ten thousand asks, and none of the answers read. The gateway waits,
// others do not.
func TestFlood(t *testing.T) {
	c := newCanaries(t)
	b := newBench(t, nil, Link{Policy: rules(t, `[]`)})
	if err := b.broker.Open("other", Link{Policy: rules(t, `[]`)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.broker.Close("other") })
	flood := b.gateway()
	flood.raw.SetWriteDeadline(time.Now().Add(patience))
	sent := make(chan int)
	go func() {
		n := 0
		for ; n < 10000; n++ {
			if flood.wire.SendAsk(wire.Ask{Seq: uint64(n + 1), Op: wire.OpAccept, Flow: uint64(n + 1), To: c.tcp4}) != nil {
				break
			}
		}
		sent <- n
	}()
	ours, theirs := unixPair(t)
	go b.broker.Serve("other", theirs)
	other := &gateway{t: t, wire: wire.NewConn(ours)}
	if _, _, err := other.wire.ReceiveAnswer(); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if a := other.name("one.test", dns.TypeA); a.Allow || !a.NXName {
			t.Fatalf("%+v", a)
		}
	}
	got := 0
	for got < 10000 {
		a, fd, err := flood.wire.ReceiveAnswer()
		if err != nil {
			t.Fatalf("after %d answers: %v", got, err)
		}
		if a.Allow || fd >= 0 {
			t.Fatalf("%+v", a)
		}
		got++
	}
	if n := <-sent; n != 10000 {
		t.Errorf("%d asks were sent", n)
	}
	sum := b.broker.Close("sb")
	if len(sum.Denied) != 1 {
		t.Errorf("%d denials in the summary; all were one", len(sum.Denied))
	}
	n, told := 0, 0
	for _, x := range b.events.list {
		n += max(1, x.Data.Count)
		told++
	}
	if n != 10000 || told > 1000 {
		t.Errorf("%d denials told in %d events; want all 10000, in few", n, told)
	}
	if n := c.seen.Load(); n != 0 {
		t.Errorf("canaries were reached %d times", n)
	}
}
