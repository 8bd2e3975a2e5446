package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Bounds of a name, as DNS has them.
const (
	maxName  = 253
	maxLabel = 63
)

// A wrong is what is the matter with a rule, and what to write instead.
type wrong struct{ what, hint string }

func (w *wrong) Error() string { return w.what }

func bad(hint, format string, a ...any) error { return &wrong{fmt.Sprintf(format, a...), hint} }

// target reads what a rule is about, all but presets, into r.
func (r *EgressRule) target(s string) error {
	const forms = "name, name:port, *.suffix:port, address, address/bits:port, [v6 address]:port or preset:NAME"
	switch {
	case s == "":
		return bad("write "+forms, "the target is empty")
	case len(s) > maxName+len("*..:65535"):
		return bad("write "+forms, "the target is longer than a name can be")
	case strings.Contains(s, "://"):
		return bad("write the name and the port of the server, as in example.test:443", "%.80q is a URL", s)
	}
	if strings.HasPrefix(s, "[") {
		inner, rest, ok := strings.Cut(s[1:], "]")
		if !ok {
			return bad("write [v6 address]:port", "%.80q has no closing bracket", s)
		}
		if rest != "" {
			if rest[0] != ':' {
				return bad("write ["+inner+"]:port; the bits of a range go inside the brackets", "%.80q: after the bracket comes a colon and the port", s)
			}
			if err := r.port(rest[1:]); err != nil {
				return err
			}
		}
		if !strings.Contains(inner, ":") {
			return bad("write it without the brackets", "%.80q: only an IPv6 address stands in brackets", s)
		}
		return r.address(inner)
	}
	if strings.Count(s, ":") > 1 {
		if a, port, ok := portLike(s); ok {
			return bad("write ["+a+"]:"+port+" for the port, or ["+s+"] for the address", "%.80q may be an address with a port, or an address alone", s)
		}
		return r.address(s) // an IPv6 address without brackets has no port
	}
	host, port, has := strings.Cut(s, ":")
	if has {
		if err := r.port(port); err != nil {
			return err
		}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return r.address(host)
	}
	if before, _, slash := strings.Cut(host, "/"); slash {
		if digits(strings.ReplaceAll(before, ".", "")) {
			return r.address(host)
		}
		return bad(`write the name alone; paths go into "paths": ["/..."]`, "%.80q has a slash", s)
	}
	return r.name(host)
}

// portLike says whether an IPv6 address without brackets can also be read as a
// shorter one and a port. Nobody means a port of one digit.
func portLike(s string) (addr, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	addr, port = s[:max(i, 0)], s[i+1:]
	if len(port) < 2 || port[0] == '0' || !digits(port) {
		return "", "", false
	}
	for _, one := range []string{s, addr} {
		if a, err := netip.ParseAddr(one); err != nil || a.Zone() != "" {
			return "", "", false
		}
	}
	return addr, port, true
}

// inside says whether a name is the sandbox itself wherever it is asked for.
func inside(name string) bool { return name == "localhost" || strings.HasSuffix(name, ".localhost") }

func (r *EgressRule) port(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || !digits(s) {
		return bad("write one port, as in example.test:443, or none for every port", "%.20q is not a port from 1 to 65535", s)
	}
	r.Port = uint16(n)
	return nil
}

// address reads an address or a range.
func (r *EgressRule) address(s string) error {
	const write = "write it as 192.0.2.7, 192.0.2.0/24, 2001:db8::7 or [2001:db8::/32]:443"
	p, err := netip.ParsePrefix(s)
	if !strings.Contains(s, "/") {
		var a netip.Addr
		if a, err = netip.ParseAddr(s); err == nil {
			if a.Zone() != "" {
				return bad("write it without the zone", "%.80q names an interface", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
	}
	switch {
	case err != nil && strings.Count(s, ":") > 1 && strings.Contains(s, "/"):
		return bad("write [address/bits]:port for an IPv6 range with a port", "%.80q is not a range of addresses", s)
	case err != nil:
		return bad(write, "%.80q is not an address or a range of addresses", s)
	case p.Addr().Is4In6():
		hint := "write the IPv4 address"
		if p.Bits() >= 96 {
			hint = "write " + printPrefix(netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked())
		}
		return bad(hint, "%.80q is IPv4 written as IPv6", s)
	case p != p.Masked():
		return bad("write "+p.Masked().String()+" for the range, or "+p.Addr().String()+" for the address", "%.80q has bits set behind its length", s)
	}
	r.Prefix = p
	return nil
}

// name reads a host name or a suffix.
func (r *EgressRule) name(s string) error {
	suffix := strings.HasPrefix(s, "*.")
	host := cleanName(strings.TrimPrefix(s, "*."))
	switch {
	case s == "*":
		return bad(`there is no rule for everything: name hosts, or "*.example.test"; for all public addresses write 0.0.0.0/0 and ::/0`, `"*" would allow everything`)
	case strings.Contains(host, "*"):
		return bad("write *.example.test: the star stands first, alone in its label, and for all names below", "%.80q has a star inside", s)
	}
	if err := checkName(host); err != nil {
		return err
	}
	if last := host[strings.LastIndexByte(host, '.')+1:]; numeric(last) {
		return bad("write the address as 192.0.2.7", "%.80q is a number, which resolvers take for an address", s)
	}
	if suffix {
		r.Suffix = host
	} else {
		r.Host = host
	}
	return nil
}

// cleanName is a name as all of this package has it.
func cleanName(s string) string {
	return strings.TrimSuffix(strings.ToLower(s), ".")
}

func checkName(s string) error {
	if s == "" {
		return bad("write a name, as in example.test:443", "there is no name")
	}
	if len(s) > maxName {
		return bad("names have at most 253 characters", "%.40q... is too long for a name", s)
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return bad("write one dot between labels", "%.80q has an empty label", s)
		}
		if len(label) > maxLabel {
			return bad("labels have at most 63 characters", "%.80q is too long for a label", label)
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return bad("labels begin and end with a letter, a digit or an underscore", "%.80q has a hyphen at the end of a label", s)
		}
		for i := 0; i < len(label); i++ {
			switch c := label[i]; {
			case c >= 0x80:
				return bad("write it in punycode, as in xn--bcher-kva.example", "%.80q has characters beyond ASCII", s)
			case !alnum(c) && c != '-' && c != '_':
				return bad("names are letters, digits, hyphens and dots", "%.80q has %q in it", s, c)
			}
		}
	}
	return nil
}

// ValidName says whether a rule can be about a name.
func ValidName(s string) bool { return checkName(s) == nil }

// numeric says whether a last label makes resolvers read a name as an IPv4
// address: decimal or octal digits, or hex with 0x.
func numeric(label string) bool {
	if digits(label) {
		return true
	}
	hex, ok := strings.CutPrefix(label, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// printTarget is the target of a rule as ParseEgress reads it.
func (r *EgressRule) printTarget() string {
	port := ""
	if r.Port != 0 {
		port = ":" + strconv.Itoa(int(r.Port))
	}
	switch {
	case r.Suffix != "":
		return "*." + r.Suffix + port
	case r.Host != "":
		return r.Host + port
	}
	s := printPrefix(r.Prefix)
	if _, _, two := portLike(s); two || r.Prefix.Addr().Is6() && port != "" {
		s = "[" + s + "]"
	}
	return s + port
}

func printPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// hint returns what an error says to write instead.
func hintOf(err error) string {
	var w *wrong
	if errors.As(err, &w) {
		return w.hint
	}
	return ""
}
