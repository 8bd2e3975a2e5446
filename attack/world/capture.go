package world

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// capture notes every frame that arrives outside and should not: it sees what
// no server is there for, and what kernels drop.
func (w *World) capture() error {
	card, err := netlink.LinkByName(outsideCard)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	f := os.NewFile(uintptr(fd), "capture")
	const ignoreOutgoing = 23
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, ignoreOutgoing, 1); err != nil {
		f.Close()
		return fmt.Errorf("capture: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8, Ifindex: card.Attrs().Index}); err != nil {
		f.Close()
		return fmt.Errorf("capture: %w", err)
	}
	w.closers = append(w.closers, f.Close)
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		b := make([]byte, 128<<10)
		for {
			n, err := f.Read(b)
			if err != nil {
				return
			}
			what := frame(b[:n])
			if what == markSeen {
				w.log.marked()
			} else if what != "" {
				w.log.hit(what)
			}
		}
	}()
	return nil
}

// markSeen is what frame says of a mark; it is no hit.
const markSeen = "mark"

// frame says what is wrong with a frame that arrived; "" if nothing is.
func frame(b []byte) string {
	if len(b) < 14 {
		return "a frame that is none"
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	switch kind {
	case unix.ETH_P_ARP:
		return arp(b)
	case unix.ETH_P_IP:
		if len(b) < 20 || int(b[0]&15)*4 < 20 || len(b) < int(b[0]&15)*4 {
			return "an IPv4 packet that is none"
		}
		src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		if b[9] == unix.IPPROTO_IGMP {
			return "" // a kernel's own, where somebody listens to a group
		}
		if b[0]&15 > 5 {
			return fmt.Sprintf("IPv4 options, to %s", dst)
		}
		if f := binary.BigEndian.Uint16(b[6:]) & 0x3fff; f != 0 {
			return fmt.Sprintf("a fragment, to %s", dst)
		}
		return packet(b[9], src, dst, b[20:])
	case unix.ETH_P_IPV6:
		if len(b) < 40 {
			return "an IPv6 packet that is none"
		}
		src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		if b[6] == 0 && len(b) >= 49 && b[40] == unix.IPPROTO_ICMPV6 && (b[48] >= 130 && b[48] <= 132 || b[48] == 143) {
			return "" // the same for IPv6
		}
		return packet(b[6], src, dst, b[40:])
	}
	return fmt.Sprintf("a frame of type %#04x", kind)
}

func arp(b []byte) string {
	if len(b) < 28 {
		return "an ARP packet that is none"
	}
	from, about := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	if !own(from) {
		return fmt.Sprintf("an ARP packet that says who %s is", from)
	}
	if about.String() != router4 {
		return fmt.Sprintf("an ARP packet about %s", about)
	}
	return ""
}

// packet judges what IP carries.
func packet(proto byte, src, dst netip.Addr, b []byte) string {
	switch proto {
	case unix.IPPROTO_TCP:
		if len(b) < 20 {
			return fmt.Sprintf("a TCP packet that is none, to %s", dst)
		}
		to := netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
		flags := b[13] & 0x3f
		switch {
		case resolver(dst) && to.Port() == 53:
		case !allowed(to):
			return fmt.Sprintf("TCP to %s", to)
		case flags == 0 || flags&3 == 3 || flags&6 == 6 || flags&0x31 == 0x21 || flags&0x11 == 1:
			return fmt.Sprintf("TCP with flags %#02x, to %s", flags, to)
		}
	case unix.IPPROTO_UDP:
		if len(b) < 8 {
			return fmt.Sprintf("a UDP packet that is none, to %s", dst)
		}
		to := netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
		if dst.String() == mark4 && strings.HasPrefix(string(b[8:]), mark) {
			return markSeen
		}
		if !resolver(dst) || to.Port() != 53 {
			return fmt.Sprintf("UDP to %s", to)
		}
	case unix.IPPROTO_ICMP:
		if len(b) > 0 && b[0] == 3 { // a port is closed inside: the kernel's own answer
			return ""
		}
		return fmt.Sprintf("ICMP to %s", dst)
	case unix.IPPROTO_ICMPV6:
		return icmp6(src, dst, b)
	default:
		return fmt.Sprintf("IP protocol %d, to %s", proto, dst)
	}
	if !own(src) {
		return fmt.Sprintf("a packet from %s, to %s", src, dst)
	}
	return ""
}

func icmp6(src, dst netip.Addr, b []byte) string {
	if len(b) < 8 {
		return fmt.Sprintf("an ICMPv6 packet that is none, to %s", dst)
	}
	switch kind := b[0]; {
	case kind == 1, kind >= 130 && kind <= 133, kind == 143:
		return "" // a kernel's own
	case kind == 135 || kind == 136:
		if len(b) < 24 {
			return "a neighbour message that is none"
		}
		about := netip.AddrFrom16([16]byte(b[8:24]))
		if about.IsLinkLocalUnicast() || own(about) || kind == 135 && about.String() == router6 {
			return ""
		}
		return fmt.Sprintf("a neighbour message about %s", about)
	default:
		return fmt.Sprintf("ICMPv6 of type %d, from %s to %s", kind, src, dst)
	}
}
