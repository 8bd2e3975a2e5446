package main

import (
	"encoding/json"

	"github.com/bermhq/berm/api"
)

// openWire is the wall of the wire: what a policy can open is opened.
var openWire = wall{
	name: "egress-policy", without: "the policy of the wire allows every address there is, and every name",
	create: func(r *api.CreateRequest) {
		if r.Egress != nil {
			r.Egress = everything()
		}
	},
}

// everything is a document that opens what a document can: every range, those
// that must be named included, over UDP too, and every name below test.
func everything() json.RawMessage {
	type rule struct {
		Allow string `json:"allow"`
		SNI   string `json:"sni,omitempty"`
		QUIC  bool   `json:"quic,omitempty"`
	}
	var rules []rule
	for _, p := range []string{
		"0.0.0.0/0", "::/0", "198.51.100.0/24", "2001:db8:1::/48", // the last two are the host's own
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16",
		"168.63.129.16/32", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2002::/16",
		"5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "::ffff:0:0:0/96",
	} {
		rules = append(rules, rule{Allow: p, QUIC: true})
	}
	for _, n := range []string{"*.test", "test", "*.internal"} {
		rules = append(rules, rule{Allow: n, SNI: "any", QUIC: true})
	}
	b, _ := json.Marshal(rules)
	return b
}
