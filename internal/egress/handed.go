package egress

import (
	"container/list"
	"net/netip"
	"slices"
)

// Bounds of what is remembered of names for one sandbox.
const (
	maxHanded  = 4096 // pairs of name and address
	maxSameAdr = 256  // names of one address
)

// handed is what a sandbox was told: which name has which address. What was used
// longest ago is forgotten first.
type handed struct {
	order *list.List // of pair; the front was used last
	at    map[pair]*list.Element
	names map[netip.Addr][]string
	addrs map[string][]netip.Addr
}

type pair struct {
	name string
	addr netip.Addr
}

func newHanded() *handed {
	return &handed{order: list.New(), at: map[pair]*list.Element{}, names: map[netip.Addr][]string{}, addrs: map[string][]netip.Addr{}}
}

func (h *handed) add(name string, a netip.Addr) {
	p := pair{name, a}
	if e, ok := h.at[p]; ok {
		h.order.MoveToFront(e)
		return
	}
	if same := h.names[a]; len(same) >= maxSameAdr {
		h.drop(pair{same[0], a})
	}
	if h.order.Len() >= maxHanded {
		h.drop(h.order.Back().Value.(pair))
	}
	h.at[p] = h.order.PushFront(p)
	h.names[a] = append(h.names[a], name)
	h.addrs[name] = append(h.addrs[name], a)
}

func (h *handed) drop(p pair) {
	h.order.Remove(h.at[p])
	delete(h.at, p)
	if l := slices.DeleteFunc(h.names[p.addr], func(n string) bool { return n == p.name }); len(l) > 0 {
		h.names[p.addr] = l
	} else {
		delete(h.names, p.addr)
	}
	if l := slices.DeleteFunc(h.addrs[p.name], func(a netip.Addr) bool { return a == p.addr }); len(l) > 0 {
		h.addrs[p.name] = l
	} else {
		delete(h.addrs, p.name)
	}
}

// namesOf are the names that an address was handed out for, the first first. It
// counts as a use of them.
func (h *handed) namesOf(a netip.Addr) []string {
	names := h.names[a]
	for _, n := range names {
		h.order.MoveToFront(h.at[pair{n, a}])
	}
	return slices.Clone(names)
}

// addrsOf are the addresses that were handed out for a name.
func (h *handed) addrsOf(name string) []netip.Addr { return slices.Clone(h.addrs[name]) }
