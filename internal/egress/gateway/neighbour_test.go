package gateway

import (
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"github.com/bermhq/berm/internal/egress/wire"
)

func TestNeighbourThatIsNotThere(t *testing.T) {
	other := netip.MustParseAddr("fd62:6572:6d00::3")
	ask := func(about netip.Addr, change func([]byte)) []byte {
		b := frame6(protoICMP6, about, append(make([]byte, 8), about.AsSlice()...)...)
		b[etherHeader+7], b[etherHeader+ipv6Header] = 255, 135
		if change != nil {
			change(b)
		}
		return b
	}
	for _, tt := range []struct {
		name   string
		about  netip.Addr
		change func([]byte)
		want   action
	}{
		{"nobody's", other, nil, stand},
		{"the gateway's", wire.Gateway6, nil, pass},
		{"the guest's", wire.Guest6, nil, pass},
		{"of another link", netip.MustParseAddr("2001:db8::3"), nil, pass},
		{"an advertisement", other, func(b []byte) { b[etherHeader+ipv6Header] = 136 }, pass},
		{"before the guest has an address", other, func(b []byte) { clear(b[etherHeader+8 : etherHeader+24]) }, pass},
		{"from afar", other, func(b []byte) { b[etherHeader+7] = 64 }, drop},
	} {
		if got, p := triage(ask(tt.about, tt.change)); got != tt.want || got == stand && p.dst != tt.about {
			t.Errorf("%s: %d for %v, want %d", tt.name, got, p.dst, tt.want)
		}
	}
	b := advert(other)
	ip := b[etherHeader:]
	sum := checksum.Combine(checksum.Combine(checksum.Checksum(ip[8:ipv6Header], 0), 32), protoICMP6)
	if checksum.Checksum(ip[ipv6Header:], sum) != 0xffff || len(b) != etherHeader+ipv6Header+32 || string(ip[ipv6Header+26:]) != wire.GatewayMAC {
		t.Errorf("the advertisement is % x", b)
	}
}
