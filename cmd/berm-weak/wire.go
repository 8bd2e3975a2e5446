package main

import (
	"encoding/json"

	"github.com/bermhq/berm/api"
)

// openWire is the wall of the wire: what a policy can open is opened.
var openWire = wall{
	name: "egress-policy", without: "the policy of the wire allows every address there is, and every name",
	red: []string{
		"egress-private",
		"egress-absolute", "egress-broadcast", "egress-churn", "egress-connect", "egress-curl-tricks", "egress-dns-case",
		"egress-dns-messages", "egress-dns-over-tls", "egress-dns-servers", "egress-dns-tcp", "egress-dns-tunnel", "egress-fragments",
		"egress-ftp", "egress-half-open", "egress-host-address", "egress-host-expect", "egress-host-loopback", "egress-host-none",
		"egress-host-odd", "egress-host-other", "egress-host-pipelined", "egress-host-second", "egress-http-09", "egress-http-bare-lf",
		"egress-http-chunks", "egress-http-cl-cl", "egress-http-cl-te", "egress-http-fold", "egress-http-h2", "egress-http-head",
		"egress-http-leading", "egress-http-te-cl", "egress-http-te-te", "egress-link-local", "egress-mapped", "egress-meta-decimal",
		"egress-meta-hex", "egress-meta-mixed", "egress-meta-octal", "egress-meta-plain", "egress-meta-short", "egress-meta6",
		"egress-name-forms", "egress-name-host", "egress-name-meta", "egress-name-mixed", "egress-name-private", "egress-names",
		"egress-names-port", "egress-nat64", "egress-not-handed-out", "egress-options", "egress-own-link", "egress-ports4",
		"egress-ports6", "egress-private6", "egress-proxy-http", "egress-proxy-socks", "egress-quic", "egress-raw", "egress-raw-ip4",
		"egress-raw-ip6", "egress-raw-silent", "egress-rebindmeta", "egress-rebindown", "egress-redirect", "egress-reserved",
		"egress-sni-hidden", "egress-sni-none", "egress-sni-other", "egress-sni-pieces", "egress-ssl2", "egress-starttls",
		"egress-tls-then", "egress-tunnels6", "egress-udp-flood", "egress-udp4", "egress-udp6", "egress-websocket",
	},
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
