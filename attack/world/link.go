package world

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	insideCard  = "inside"
	outsideCard = "outside"
)

// inside makes the wire, puts its far end into the namespace ns, and leads
// every address there is over it.
func inside(ns int) error {
	if err := up("lo"); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = insideCard
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: outsideCard}); err != nil {
		return fmt.Errorf("make a wire: %w", err)
	}
	far, err := netlink.LinkByName(outsideCard)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(far, ns); err != nil {
		return fmt.Errorf("put the wire's end outside: %w", err)
	}
	if err := address(insideCard, Host4+"/32", Host6+"/128"); err != nil {
		return err
	}
	if err := up(insideCard); err != nil {
		return err
	}
	if err := beside(insideCard, router4, router6); err != nil {
		return err
	}
	near, err := netlink.LinkByName(insideCard)
	if err != nil {
		return err
	}
	for all, by := range map[string]string{"0.0.0.0/0": router4, "::/0": router6} {
		_, dst, _ := net.ParseCIDR(all)
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: near.Attrs().Index, Dst: dst, Gw: net.ParseIP(by)}); err != nil {
			return fmt.Errorf("route by %s: %w", by, err)
		}
	}
	return nil
}

// away sets up the far end: every address is local there.
func away() error {
	if err := up("lo"); err != nil {
		return err
	}
	if err := address(outsideCard, router4+"/32", router6+"/128"); err != nil {
		return err
	}
	// What attackers advertise must not change what canaries can be reached.
	for _, s := range []string{"accept_ra", "accept_redirects"} {
		for _, card := range []string{"all", outsideCard} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+card+"/"+s, []byte("0"), 0); err != nil {
				return err
			}
		}
	}
	if err := up(outsideCard); err != nil {
		return err
	}
	if err := beside(outsideCard, Host4, Host6); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		_, dst, _ := net.ParseCIDR(all)
		// In the main table, so that the way back to the inside end stays.
		r := netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_MAIN, Scope: unix.RT_SCOPE_HOST}
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("make %s local: %w", all, err)
		}
	}
	return nil
}

// beside says which addresses are at the other end of a card. Nothing else is:
// no neighbour has to be looked for, so all packets are seen as what they are.
func beside(name string, addrs ...string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		ip, bits := net.ParseIP(a), 128
		if ip.To4() != nil {
			ip, bits = ip.To4(), 32
		}
		r := netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}, Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("%s beside %s: %w", a, name, err)
		}
	}
	return nil
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// address gives a card addresses that are of use at once.
func address(name string, prefixes ...string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		a, err := netlink.ParseAddr(p)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("address %s of %s: %w", p, name, err)
		}
	}
	return nil
}
