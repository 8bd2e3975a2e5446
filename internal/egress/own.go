package egress

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// own says whether an address is one of this host's. There is no netlink socket
// to ask with (the daemon's filter has none), so the kernel is asked whether a
// UDP socket may be bound to it. Where that cannot be tried the address counts
// as the host's own: a check that cannot run is a denial.
func own(a netip.Addr) bool {
	a = a.Unmap()
	switch bind(a) {
	case unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT:
		return false
	case nil:
		// A host with ip_nonlocal_bind binds to anything; then only routing tells.
		if canary := canaryOf(a); a == canary || bind(canary) == nil {
			return home(a)
		}
	}
	return true
}

// home says whether packets to an address stay on this host.
func home(a netip.Addr) bool {
	from, mtu, err := route(a)
	switch {
	case err == unix.ENETUNREACH || err == unix.EHOSTUNREACH:
		return false
	case err != nil || a.IsLoopback() || from == a:
		return true
	}
	// A second address of an interface has the first as its source. What stays on
	// the host goes through the loopback device, which carries more than any other.
	return mtu > 65535
}

// routed says whether this host has a way to an address. Nothing is sent.
func routed(a netip.Addr) bool {
	_, _, err := route(a.Unmap())
	return err == nil
}

// canaryOf is an address that no host has and that is no network's broadcast
// address: one of the reserved class, and one for documentation.
func canaryOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{240, 255, 255, 254})
	}
	return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
}

func bind(a netip.Addr) error {
	fd, err := udpSocket(a)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, sockaddr(a, 0))
}

// route is the address that packets to a would come from, and how long they may
// be.
func route(a netip.Addr) (from netip.Addr, mtu int, err error) {
	fd, err := udpSocket(a)
	if err != nil {
		return from, 0, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(a, 9)); err != nil { // any port: UDP's connect only looks up the route
		return from, 0, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return from, 0, err
	}
	level, opt := unix.IPPROTO_IP, unix.IP_MTU
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		from = netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		from, level, opt = netip.AddrFrom16(sa.Addr), unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	mtu, err = unix.GetsockoptInt(fd, level, opt)
	return from, mtu, err
}

func udpSocket(a netip.Addr) (int, error) {
	family := unix.AF_INET6
	if a.Is4() {
		family = unix.AF_INET
	}
	return unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: port, Addr: a.As16()}
}
