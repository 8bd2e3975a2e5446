package policy

import (
	"net/netip"
	"slices"
)

// A class is a range of addresses that lead somewhere else than to the public
// network: they are reached only where a CIDR rule lies within the range.
type class struct {
	prefix netip.Prefix
	what   string // for people
	// preset: what a registry of one's own may have. A preset's rules reach
	// these without a CIDR rule; nobody's registry is a metadata service.
	preset bool
}

// classes are in such an order that the narrowest of two comes first. The
// documentation and benchmarking ranges are not among them: nothing answers
// there but what somebody put there on purpose.
var classes = []class{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network", false}, // Linux takes 0.0.0.0 for loopback
	{netip.MustParsePrefix("10.0.0.0/8"), "private", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT", true},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", true},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata service", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local", false},
	{netip.MustParsePrefix("172.16.0.0/12"), "private", true},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments", false},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay", false},
	{netip.MustParsePrefix("192.168.0.0/16"), "private", true},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", false},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast", false},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved", false},

	{netip.MustParsePrefix("::/128"), "unspecified", false},
	{netip.MustParsePrefix("::1/128"), "loopback", true},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible", false},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated", false},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64", false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "NAT64", false},
	{netip.MustParsePrefix("100::/64"), "discard-only", false},
	{netip.MustParsePrefix("2001::/32"), "Teredo", false},
	{netip.MustParsePrefix("2002::/16"), "6to4", false},
	{netip.MustParsePrefix("5f00::/16"), "segment routing", false},
	{netip.MustParsePrefix("fc00::/7"), "private", true},
	{netip.MustParsePrefix("fe80::/10"), "link-local", false},
	{netip.MustParsePrefix("fec0::/10"), "site-local", true},
	{netip.MustParsePrefix("ff00::/8"), "multicast", false},
}

// metadata are the services of clouds that hand out credentials to whoever is
// on the machine, where they lie in a range that a preset may reach.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd20:ce::254"),
}

// Bits that a CIDR rule must have to reach an address of the host itself: one
// that means everything does not mean the machine it runs on.
const (
	ownBits4 = 8
	ownBits6 = 32
)

// zoned stands for any address with a zone, nowhere for what is none: nothing
// names those.
var (
	zoned   = class{what: "bound to an interface"}
	nowhere = class{what: "no address"}
)

// plainAddr is the address that a connection to a really goes to.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap() }

// special returns the class of an address, nil for a public one.
func special(a netip.Addr) *class {
	if !a.IsValid() {
		return &nowhere
	}
	if a.Zone() != "" {
		return &zoned
	}
	for i := range classes {
		if classes[i].prefix.Contains(a) {
			return &classes[i]
		}
	}
	return nil
}

// home returns the narrowest class that holds all of p, nil for none.
func home(p netip.Prefix) *class {
	for i := range classes {
		if within(p, classes[i].prefix) {
			return &classes[i]
		}
	}
	return nil
}

// within says whether all of p lies in outer.
func within(p, outer netip.Prefix) bool {
	return outer.Bits() <= p.Bits() && outer.Contains(p.Addr())
}

// names says whether a rule for p means the address a, which it contains: it
// always means a public one, and a special one only from inside its class.
func names(p netip.Prefix, a netip.Addr, own bool) bool {
	if own && !reachesOwn(p) {
		return false
	}
	c := special(a)
	return c == nil || c.prefix.IsValid() && within(p, c.prefix)
}

func reachesOwn(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() >= ownBits4
	}
	return p.Bits() >= ownBits6
}

// Public says whether an address is in none of the ranges that a rule must name.
func Public(a netip.Addr) bool { return special(plainAddr(a)) == nil }

// PresetReaches says whether the rules of a preset may reach an address: it is
// public, or one that a registry of one's own may have.
func PresetReaches(a netip.Addr) bool { return (&EgressRule{Preset: "any"}).reaches(plainAddr(a)) }

// reaches says whether a rule for names reaches a refused address by itself.
func (r *EgressRule) reaches(a netip.Addr) bool {
	if r.Preset == "" || slices.Contains(metadata, a) {
		return false
	}
	c := special(a)
	return c == nil || c.preset
}
