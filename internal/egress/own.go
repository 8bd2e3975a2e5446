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
			from, err := source(a)
			return err == nil && from == a || err != nil && err != unix.ENETUNREACH && err != unix.EHOSTUNREACH
		}
	}
	return true
}

// routed says whether this host has a way to an address. Nothing is sent.
func routed(a netip.Addr) bool {
	_, err := source(a)
	return err == nil
}

// canaryOf is an address that no host has: the broadcast address of a range for
// documentation, and an address out of IPv6's.
func canaryOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{192, 0, 2, 255})
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

// source is the address that packets to a would come from.
func source(a netip.Addr) (netip.Addr, error) {
	fd, err := udpSocket(a)
	if err != nil {
		return netip.Addr{}, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(a, 9)); err != nil { // any port: UDP's connect only looks up the route
		return netip.Addr{}, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr), nil
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr).Unmap(), nil
	}
	return netip.Addr{}, unix.EAFNOSUPPORT
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
