package egress

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Where the files are, and how long a file is believed unseen.
const (
	hostsPath  = "/etc/hosts"
	resolvPath = "/etc/resolv.conf"
	filesAge   = 5 * time.Second
	filesMax   = 1 << 20 // bytes of each
)

// Bounds of one answer and of what is kept of it.
const (
	maxAddrs    = 16
	maxChain    = 16 // CNAMEs in one answer
	minTTL      = time.Second
	maxTTL      = 300 * time.Second
	negativeTTL = 5 * time.Second
	udpSize     = 1232 // EDNS0: what fits every path
)

// ReadFiles reads what Options.Files wants, before rights are given up.
func ReadFiles() *Files {
	return &Files{Hosts: readFile(hostsPath), Resolv: readFile(resolvPath)}
}

func readFile(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, filesMax))
	if err != nil {
		return nil
	}
	return data
}

// A resolver finds addresses the way that the files say. It decides nothing:
// what may be asked was decided before, what may be used is decided after.
type resolver struct {
	fixed bool
	paths [2]string // hosts, resolv.conf

	mu      sync.Mutex
	looked  time.Time
	mtimes  [2]time.Time
	current *resolution
}

// resolution is what the two files say.
type resolution struct {
	hosts    map[string][]netip.Addr
	servers  []string // address:port
	attempts int
	timeout  time.Duration
}

// found is what a name leads to.
type found struct {
	addrs []netip.Addr
	ttl   time.Duration
	nx    bool // there is no such name
}

var errNoServers = errors.New("no name server")

func newResolver(files *Files) *resolver {
	if files == nil {
		return &resolver{paths: [2]string{hostsPath, resolvPath}}
	}
	return &resolver{fixed: true, current: parseFiles(files)}
}

func parseFiles(f *Files) *resolution {
	r := &resolution{hosts: map[string][]netip.Addr{}, attempts: 2, timeout: 5 * time.Second}
	for line := range strings.Lines(string(f.Hosts)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		a, err := netip.ParseAddr(words[0])
		if err != nil || a.Zone() != "" {
			continue
		}
		for _, name := range words[1:] {
			name = strings.TrimSuffix(strings.ToLower(name), ".")
			if l := r.hosts[name]; len(l) < maxAddrs && !slices.Contains(l, a) {
				r.hosts[name] = append(l, a)
			}
		}
	}
	conf, err := dns.ClientConfigFromReader(bytes.NewReader(f.Resolv))
	if err != nil {
		return r
	}
	for _, s := range conf.Servers[:min(3, len(conf.Servers))] { // as resolvers everywhere do
		r.servers = append(r.servers, net.JoinHostPort(s, conf.Port))
	}
	r.attempts = min(max(conf.Attempts, 1), 5)
	r.timeout = time.Duration(min(max(conf.Timeout, 1), 30)) * time.Second
	return r
}

// files returns what the files say now, or said a moment ago.
func (r *resolver) files() *resolution {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fixed || r.current != nil && time.Since(r.looked) < filesAge {
		return r.current
	}
	var mtimes [2]time.Time
	for i, path := range r.paths {
		if st, err := os.Stat(path); err == nil {
			mtimes[i] = st.ModTime()
		}
	}
	if r.current == nil || mtimes != r.mtimes {
		r.current, r.mtimes = parseFiles(&Files{Hosts: readFile(r.paths[0]), Resolv: readFile(r.paths[1])}), mtimes
	}
	r.looked = time.Now()
	return r.current
}

// lookup finds the addresses of one family for a lower-case name. qtype is
// dns.TypeA or dns.TypeAAAA. The error says that nobody could be asked.
func (r *resolver) lookup(ctx context.Context, name string, qtype uint16) (found, error) {
	res := r.files()
	if all, ok := res.hosts[name]; ok {
		out := found{ttl: negativeTTL} // a file changes without notice
		for _, a := range all {
			if a.Is4() == (qtype == dns.TypeA) && !a.Is4In6() {
				out.addrs = append(out.addrs, a)
			}
		}
		return out, nil
	}
	err := errNoServers
	for round := range res.attempts {
		for i, server := range res.servers {
			// One that is silent leaves time for those after it, and all of them for
			// another round.
			share, turns := res.timeout, len(res.servers)-i
			if round+1 < res.attempts {
				turns++
			}
			if end, ok := ctx.Deadline(); ok {
				share = min(share, time.Until(end)/time.Duration(turns))
			}
			var out found
			if out, err = ask(ctx, server, name, qtype, share); err == nil {
				return out, nil
			}
			if ctx.Err() != nil {
				return found{}, ctx.Err()
			}
		}
	}
	return found{}, err
}

// ask puts one question to one server: over UDP, and over TCP where the answer
// was cut.
func ask(ctx context.Context, server, name string, qtype uint16, timeout time.Duration) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := exchange(ctx, "udp", server, name, qtype, true)
	if err == nil && (reply.Rcode == dns.RcodeFormatError || reply.Rcode == dns.RcodeNotImplemented) {
		reply, err = exchange(ctx, "udp", server, name, qtype, false) // it may not know EDNS
	}
	if err == nil && reply.Truncated {
		reply, err = exchange(ctx, "tcp", server, name, qtype, true)
	}
	if err != nil {
		return found{}, err
	}
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return found{}, errors.New("name server: " + dns.RcodeToString[reply.Rcode])
	}
	return read(reply, name, qtype), nil
}

// exchange sends a question and returns the reply to it. What is not the reply,
// by its id and its question, is passed over: it may be anybody's.
func exchange(ctx context.Context, network, server, name string, qtype uint16, edns bool) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype) // the id is random, the kernel's port too
	if edns {
		q.SetEdns0(udpSize, false)
	}
	out, err := q.Pack()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		out = append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)
	}
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := next(conn, network, buf)
		if err != nil {
			return nil, err
		}
		reply := new(dns.Msg)
		if reply.Unpack(buf[:n]) != nil || reply.Id != q.Id || !reply.Response || len(reply.Question) != 1 ||
			reply.Question[0].Qtype != qtype || reply.Question[0].Qclass != dns.ClassINET ||
			!strings.EqualFold(reply.Question[0].Name, q.Question[0].Name) {
			if network == "tcp" {
				return nil, errors.New("name server: not the answer to what was asked")
			}
			continue
		}
		return reply, nil
	}
}

func next(conn net.Conn, network string, buf []byte) (int, error) {
	if network != "tcp" {
		return conn.Read(buf)
	}
	if _, err := io.ReadFull(conn, buf[:2]); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf[:binary.BigEndian.Uint16(buf)])
}

// read takes from a reply what is about the name that was asked: its aliases in
// order, and the addresses of the last of them. All else is not looked at.
func read(m *dns.Msg, name string, qtype uint16) found {
	out, at := found{ttl: maxTTL}, dns.Fqdn(name)
	short := func(seconds uint32) {
		out.ttl = max(minTTL, min(out.ttl, time.Duration(seconds)*time.Second))
	}
	for range maxChain {
		i := slices.IndexFunc(m.Answer, func(rr dns.RR) bool {
			return rr.Header().Rrtype == dns.TypeCNAME && rr.Header().Class == dns.ClassINET && strings.EqualFold(rr.Header().Name, at)
		})
		if i < 0 {
			break
		}
		alias, ok := m.Answer[i].(*dns.CNAME)
		if !ok {
			break
		}
		short(alias.Hdr.Ttl)
		at = alias.Target
	}
	for _, rr := range m.Answer {
		if h := rr.Header(); h.Rrtype != qtype || h.Class != dns.ClassINET || !strings.EqualFold(h.Name, at) || len(out.addrs) == maxAddrs {
			continue
		}
		var ip net.IP
		switch rr := rr.(type) {
		case *dns.A:
			ip = rr.A.To4()
		case *dns.AAAA:
			ip = rr.AAAA.To16()
		}
		a, ok := netip.AddrFromSlice(ip)
		if ok && a.Is4() == (qtype == dns.TypeA) && !a.Is4In6() && !slices.Contains(out.addrs, a) {
			out.addrs = append(out.addrs, a)
			short(rr.Header().Ttl)
		}
	}
	if len(out.addrs) == 0 {
		out.nx = m.Rcode == dns.RcodeNameError
		out.ttl = negativeTTL
	}
	return out
}
