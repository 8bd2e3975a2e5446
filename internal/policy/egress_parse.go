package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// Bounds of an egress document.
const (
	MaxEgressBytes = 64 << 10
	MaxEgressRules = 256 // with presets written out
	maxCount       = 1_000_000_000
	maxBytes       = 1 << 50
	maxPathBytes   = 1024
	maxLife        = 10 * 365 * 24 * time.Hour
)

// ParseEgress reads the egress part of a policy document: a JSON array. Times
// that are durations count from now. presets finds a preset by its name; nil:
// there are none. A document that is absent or null is a nil *Egress. Errors
// are *api.Error with a hint that says what to write.
func ParseEgress(raw json.RawMessage, now time.Time, presets func(name string) (Preset, error)) (*Egress, error) {
	if !Present(raw) {
		return nil, nil
	}
	if len(raw) > MaxEgressBytes {
		return nil, invalid("write fewer rules: suffixes and ranges stand for many", "egress: the document has %d bytes; it may have %d", len(raw), MaxEgressBytes)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, invalid(`write an array of rules, as in [{"allow": "example.test:443"}]`, "egress: not a JSON array of rules: %s", oneLine(err.Error()))
	}
	e := &Egress{Rules: make([]EgressRule, 0, min(len(list), MaxEgressRules))}
	for i, one := range list {
		rules, err := parseRule(one, now, presets)
		if err == nil && len(e.Rules)+len(rules) > MaxEgressRules {
			err = bad("write fewer rules: suffixes and ranges stand for many", "with it there are more than %d rules", MaxEgressRules)
		}
		if err != nil {
			return nil, invalid(hintOf(err), "egress: rule %d, %s: %s", i+1, brief(one), oneLine(err.Error()))
		}
		e.Rules = append(e.Rules, rules...)
	}
	return e, nil
}

func invalid(hint, format string, a ...any) error {
	if hint == "" {
		hint = "berm help policy"
	}
	return &api.Error{Code: api.CodePolicyInvalid, Message: fmt.Sprintf(format, a...), Hint: hint}
}

// options is a rule as it is written, in the order in which it is printed.
type options api.EgressRule

const optionNames = "allow, deny, methods, paths, sni, quic, rate, bytes, connections, uses, expires"

func parseRule(raw json.RawMessage, now time.Time, presets func(string) (Preset, error)) ([]EgressRule, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, bad(`write {"allow": "example.test:443"}`, "a rule is an object")
	}
	var o options
	var r EgressRule
	given := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.Token() // the brace
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if given[key] {
			return nil, bad("write it once", "%.40q stands there twice", key)
		}
		given[key] = true
		if err := r.option(&o, key, value, now); err != nil {
			return nil, err
		}
	}
	return r.finish(&o, given, presets)
}

// option reads one member of a rule.
func (r *EgressRule) option(o *options, key string, v json.RawMessage, now time.Time) error {
	switch key {
	case "allow":
		return text(key, v, &o.Allow)
	case "deny":
		return text(key, v, &o.Deny)
	case "methods":
		if err := texts(key, v, `["GET", "HEAD"]`, &o.Methods); err != nil {
			return err
		}
		for i, m := range o.Methods {
			o.Methods[i] = strings.ToUpper(m)
			if !token(m) {
				return bad(`write "methods": ["GET", "HEAD"]`, "%.40q is not an HTTP method", m)
			}
		}
		r.Methods = o.Methods
	case "paths":
		if err := texts(key, v, `["/v1"]`, &o.Paths); err != nil {
			return err
		}
		for _, p := range o.Paths {
			if !plainPath(p) || len(p) > maxPathBytes {
				return bad(`write prefixes that begin with / and have no escapes, dots, double slashes or query, as in "paths": ["/v1"]`, "%.80q is not a plain path", p)
			}
		}
		r.Paths = o.Paths
	case "sni":
		if err := text(key, v, &o.SNI); err != nil {
			return err
		}
		if o.SNI != "any" {
			return bad(`write "sni": "any", or leave sni out: then names must match`, "sni: %.40q is not any", o.SNI)
		}
		r.AnySNI = true
	case "quic":
		if s := string(v); s != "true" && s != "false" {
			return bad(`write "quic": true`, "quic is true or false")
		}
		o.QUIC = string(v) == "true"
		r.QUIC = o.QUIC
	case "rate":
		if err := text(key, v, &o.Rate); err != nil {
			return err
		}
		rate, err := parseRate(o.Rate)
		r.Rate = rate
		return err
	case "bytes":
		n, err := parseBytes(v)
		o.Bytes, r.Bytes = n, n
		return err
	case "connections":
		n, err := count(key, v)
		o.Connections, r.Connections = n, n
		return err
	case "uses":
		n, err := count(key, v)
		o.Uses, r.Uses = n, n
		return err
	case "expires":
		if err := text(key, v, &o.Expires); err != nil {
			return err
		}
		t, err := parseExpires(o.Expires, now)
		r.Expires = t
		return err
	default:
		return bad("rules have "+optionNames, "%.40q is not known", key)
	}
	return nil
}

// finish holds the members of a rule against each other, reads its target and
// returns the rule, or one for each host of its preset.
func (r *EgressRule) finish(o *options, given map[string]bool, presets func(string) (Preset, error)) ([]EgressRule, error) {
	switch {
	case given["allow"] == given["deny"] && given["allow"]:
		return nil, bad("write two rules; the first that matches wins", "allow and deny stand in one rule")
	case given["allow"] == given["deny"]:
		return nil, bad(`write {"allow": "example.test:443"} or {"deny": "example.test"}`, "there is neither allow nor deny")
	}
	r.Allow = given["allow"]
	target := o.Allow
	if !r.Allow {
		target = o.Deny
		for _, key := range []string{"sni", "quic", "rate", "bytes", "connections", "uses"} {
			if given[key] {
				return nil, bad("write it on the allow rule; a deny rule has methods, paths and expires", "a deny rule has no %s", key)
			}
		}
	}
	if r.QUIC && (r.Methods != nil || r.Paths != nil) {
		return nil, bad("write two rules", "nobody sees requests in QUIC, so quic does not go with methods or paths")
	}
	if name, ok := strings.CutPrefix(target, "preset:"); ok {
		return r.expand(o, name, presets)
	}
	if err := r.target(target); err != nil {
		return nil, err
	}
	if r.Allow && (inside(r.Host) || inside(r.Suffix)) {
		return nil, bad("leave it out; a server on this host is reached by an address of this host, as in 192.0.2.7:8080",
			"%.80q is the sandbox itself there, and never leaves it", target)
	}
	if err := r.quic(); err != nil {
		return nil, err
	}
	if r.Allow {
		o.Allow = r.printTarget()
	} else {
		o.Deny = r.printTarget()
	}
	r.Text = o.text()
	return []EgressRule{*r}, nil
}

func (r *EgressRule) quic() error {
	if r.QUIC && !r.AnySNI && !r.Prefix.IsValid() {
		return bad(`add "sni": "any", which says that names need not be seen`, "quic on a rule for names: nobody looks into QUIC")
	}
	return nil
}

// text is a rule as a person writes it: a target for --allow, or an object.
func (o *options) text() string {
	plain := options{Allow: o.Allow}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(o) != nil {
		return ""
	}
	s := strings.TrimSpace(b.String())
	b.Reset()
	if enc.Encode(plain) == nil && o.Allow != "" && s == strings.TrimSpace(b.String()) {
		return o.Allow
	}
	return s
}

// expand returns one rule for each host of a preset.
func (r *EgressRule) expand(o *options, name string, presets func(string) (Preset, error)) ([]EgressRule, error) {
	switch {
	case !r.Allow:
		return nil, bad("leave the preset out, or deny its hosts by name", "a preset cannot be denied")
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return nil, bad("write preset:pip", "%.40q is not a name of a preset", name)
	case presets == nil:
		return nil, bad("name the hosts, as in example.test:443", "there are no presets here")
	}
	p, err := presets(name)
	if err != nil {
		hint := "name the hosts, as in example.test:443"
		var a *api.Error
		if errors.As(err, &a) && a.Hint != "" {
			hint = a.Hint
		}
		return nil, &wrong{fmt.Sprintf("preset %s: %v", name, err), hint}
	}
	if len(p.Hosts) == 0 {
		return nil, bad("name the hosts, as in example.test:443", "preset %s has no hosts", name)
	}
	var out []EgressRule
	for _, host := range p.Hosts {
		one := *r
		one.Preset = name
		err := one.target(host)
		if err == nil && (one.Suffix != "" || one.Port == 0 || one.Prefix.IsValid() && !one.Prefix.IsSingleIP()) {
			err = errors.New("neither name:port nor address:port")
		}
		if err != nil {
			return nil, bad("mend the presets file", "preset %s: host %.80q: %v", name, host, err)
		}
		if err := one.quic(); err != nil {
			return nil, err
		}
		one.Text = o.text() + " " + one.printTarget()
		out = append(out, one)
	}
	for _, host := range p.Found {
		one := *r
		if one.target(host) != nil || one.Host == "" || one.Port == 0 || one.quic() != nil || slices.Contains(p.Hosts, host) {
			continue // a registry's word is no reason to fail
		}
		one.Text = o.text() + " " + one.printTarget()
		out = append(out, one)
	}
	return out, nil
}

func text(key string, v json.RawMessage, to *string) error {
	if len(v) == 0 || v[0] != '"' || json.Unmarshal(v, to) != nil {
		return bad(`write it in quotes`, "%s is not a text", key)
	}
	return nil
}

func texts(key string, v json.RawMessage, example string, to *[]string) error {
	hint := fmt.Sprintf("write %q: %s, or leave it out for all", key, example)
	var list []json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return bad(hint, "%s is not a list with something in it", key)
	}
	for _, one := range list {
		var s string
		if text(key, one, &s) != nil {
			return bad(hint, "%s is not a list of texts", key)
		}
		if !slices.Contains(*to, s) {
			*to = append(*to, s)
		}
	}
	return nil
}

func token(s string) bool {
	for i := 0; i < len(s); i++ {
		if !alnum(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

func count(key string, v json.RawMessage) (int, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 1 || n > maxCount {
		return 0, bad(fmt.Sprintf("write %q: 10, or leave it out for any number", key), "%s: %.40s is not a whole number from 1 to %d", key, v, maxCount)
	}
	return int(n), nil
}

func parseBytes(v json.RawMessage) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if len(v) > 0 && v[0] == '"' {
		var s string
		if err = json.Unmarshal(v, &s); err == nil {
			n, err = api.ParseSize(s)
		}
	}
	if err != nil || n < 1 || n > maxBytes {
		return 0, bad(`write "bytes": "10m" or a whole number, or leave it out for any number`, "bytes: %.40s is not a size from 1 to 1024t", v)
	}
	return n, nil
}

func parseRate(s string) (Rate, error) {
	n, per, _ := strings.Cut(s, "/")
	unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[per]
	v, err := strconv.Atoi(n)
	if err != nil || !digits(n) || v < 1 || v > maxCount || unit == 0 {
		return Rate{}, bad(`write "rate": "10/s", "100/m" or "1000/h"`, "rate: %.40q is not a number in a second, minute or hour", s)
	}
	return Rate{N: v, Per: unit}, nil
}

func parseExpires(s string, now time.Time) (time.Time, error) {
	const write = `write "expires": "10m" or a time such as "2030-01-31T12:00:00Z"`
	if d, err := time.ParseDuration(s); err == nil {
		if d <= 0 || d > maxLife {
			return time.Time{}, bad(write, "expires: %.40q is not a time to come within ten years", s)
		}
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.IsZero() || t.Year() > math.MaxInt16 {
		return time.Time{}, bad(write, "expires: %.40q is neither a time nor how long from now", s)
	}
	return t, nil
}

// brief is a rule as an error shows it.
func brief(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "?"
	}
	return oneLine(b.String())
}

// oneLine makes a text safe to show: short, and without anything that a
// terminal could obey.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(s) > 240 {
		s = s[:240] + "..."
	}
	return s
}
