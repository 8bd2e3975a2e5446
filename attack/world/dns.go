package world

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

// zone says where names lead. Those that are not here do not exist.
var zone = map[string][]string{
	"example.test":       {Allowed4, Allowed6},
	"other.test":         {Allowed4, Allowed6}, // the same server by another name
	"evil.test":          {"203.0.113.66", "2001:db8:66::66"},
	"private.test":       {"10.9.8.7", "fd00::9:8:7"},
	"lan.test":           {"192.168.9.8", "172.16.9.8"},
	"meta.test":          {"169.254.169.254", "fd00:ec2::254"},
	"cgnat.test":         {"100.100.100.200"},
	"loop.test":          {"127.0.0.1", "::1"},
	"own.test":           {Host4, Host6},
	"zero.test":          {"0.0.0.0", "::"},
	"mcast.test":         {"224.0.0.251", "ff02::fb"},
	"v6only.test":        {Allowed6},
	"mapped.test":        {"::ffff:10.9.8.7"},
	"compat.test":        {"::10.9.8.7"},
	"nat64.test":         {"64:ff9b::a09:807"},
	"sixtofour.test":     {"2002:a09:807::1"},
	"teredo.test":        {"2001:0:a09:807::1"},
	"link.test":          {"fe80::1"},
	"gateway.test":       {"192.0.0.1", "fd62:6572:6d00::1"},
	"mixed.test":         {"10.9.8.7", Allowed4},
	"cname-private.test": {"10.9.8.7"},
}

// changing names lead to another place each time that they are asked for, the
// last of them from then on.
var changing = map[string][]string{
	"rebind.test":     {Allowed4, "127.0.0.1"},
	"rebindmeta.test": {Allowed4, "169.254.169.254"},
	"rebindown.test":  {Allowed4, Host4},
}

// mostLabels is more than the wire lets out in names within one case.
const mostLabels = 4 << 10

// question reads the only question of a query.
func question(q []byte) (name string, kind uint16, end int, ok bool) {
	if len(q) < 12 || binary.BigEndian.Uint16(q[4:]) != 1 {
		return "", 0, 0, false
	}
	at := 12
	var labels []string
	for {
		if at >= len(q) {
			return "", 0, 0, false
		}
		n := int(q[at])
		at++
		if n == 0 {
			break
		}
		if n > 63 || at+n > len(q) {
			return "", 0, 0, false
		}
		labels = append(labels, string(q[at:at+n]))
		at += n
	}
	if at+4 > len(q) {
		return "", 0, 0, false
	}
	return strings.Join(labels, "."), binary.BigEndian.Uint16(q[at:]), at + 4, true
}

// answer answers a query, and judges it if it came to the resolver.
func (w *World) answer(q []byte, judged bool) []byte {
	name, kind, end, ok := question(q)
	if !ok {
		if judged {
			w.log.hit("a DNS message that is none")
		}
		return nil
	}
	low := strings.ToLower(name)
	if judged {
		w.judge(name, low, kind)
	}
	code, addrs := 0, zone[low]
	if strings.HasSuffix(low, ".wild.test") {
		addrs = []string{Wild4, Wild6}
	} else if list := changing[low]; list != nil {
		addrs = list[:1]
		if kind == 1 {
			n := w.log.count(low)
			addrs = list[min(n, len(list))-1:][:1]
		}
	} else if addrs == nil {
		code = 3
	}
	var records []byte
	count := 0
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		if kind == 1 && a.Is4() || kind == 28 && a.Is6() {
			b := a.AsSlice()
			records = append(records, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(b)))
			records = append(records, b...)
			count++
		}
	}
	if kind == 16 && code == 0 {
		records, count = []byte("\xc0\x0c\x00\x10\x00\x01\x00\x00\x00\x00\x00\x07\x06canary"), 1
	}
	out := append([]byte{}, q[:end]...)
	binary.BigEndian.PutUint16(out[2:], 0x8580|uint16(code))
	binary.BigEndian.PutUint16(out[6:], uint16(count))
	clear(out[8:12])
	return append(out, records...)
}

func (w *World) judge(name, low string, kind uint16) {
	switch {
	case !w.log.may(low):
		w.log.hit(fmt.Sprintf("the resolver, asked for %.80q", name))
	case kind != 1 && kind != 28:
		w.log.hit(fmt.Sprintf("the resolver, asked for type %d of %.80q", kind, name))
	case name != low:
		w.log.hit(fmt.Sprintf("the resolver, asked in capitals: %.80q", name))
	default:
		w.log.fine("dns " + low)
	}
	if under, ok := strings.CutSuffix(low, ".wild.test"); ok && w.log.count(low) == 1 {
		if len(under) > 120 {
			w.log.hit(fmt.Sprintf("the resolver, asked for a name of %d bytes", len(name)))
		}
		if w.log.carried(len(under)) > mostLabels {
			w.log.hit(fmt.Sprintf("the resolver, told more than %d bytes in names", mostLabels))
		}
	}
}

// dnsOver answers queries on a TCP connection.
func (w *World) dnsOver(c net.Conn, r io.Reader, judged bool) {
	for {
		c.SetDeadline(time.Now().Add(patience))
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(r, q); err != nil {
			return
		}
		a := w.answer(q, judged)
		if a == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}
