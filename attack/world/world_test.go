package world

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// within runs the calling test again in a process that may build a world, and
// says whether this is that process.
func within(t *testing.T) bool {
	t.Helper()
	if os.Getenv("BERM_TEST_WORLD") == t.Name() {
		return true
	}
	if why := Why(); why != "" {
		t.Skip(why)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "BERM_TEST_WORLD="+t.Name())
	cmd.SysProcAttr = Attr()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestWorld: what is sent anywhere but where the rules allow is noted, and what
// the rules allow is not.
func TestWorld(t *testing.T) {
	if !within(t) {
		return
	}
	began := time.Now()
	w, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Logf("built in %v", time.Since(began))
	say := func(network, to, text string) string {
		c, err := net.DialTimeout(network, to, 20*time.Second)
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(3 * time.Second))
		c.Write([]byte(text))
		b := make([]byte, 2048)
		n, _ := c.Read(b)
		return string(b[:n])
	}
	get := func(host, path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	query := func(name string, kind byte) string {
		q := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
		for l := range strings.SplitSeq(name, ".") {
			q += string(rune(len(l))) + l
		}
		return q + "\x00\x00" + string(rune(kind)) + "\x00\x01"
	}
	for _, tt := range []struct{ name, network, to, text, hit, good string }{
		{"allowed", "tcp", Allowed4 + ":8080", get("example.test", "/a"), "", "http4 /a"},
		{"allowed 6", "tcp", "[" + Allowed6 + "]:8080", get("example.test:8080", "/b"), "", "http6 /b"},
		{"below a suffix", "tcp", Wild4 + ":8080", get("x.wild.test", "/c"), "", "http4 /c"},
		{"another host", "tcp", Allowed4 + ":8080", get("other.test", "/a"), `the host "other.test"`, ""},
		{"a forbidden path", "tcp", Allowed4 + ":8080", get("example.test", "/denied"), "forbidden", ""},
		{"the second request", "tcp", Allowed4 + ":8080", get("example.test", "/a") + get("evil.test", "/"), "evil.test", ""},
		{"two lengths", "tcp", Allowed4 + ":8080", "POST / HTTP/1.1\r\nHost: example.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths", ""},
		{"another port", "tcp", Allowed4 + ":8081", "x\n\n", "TCP to 203.0.113.10:8081", ""},
		{"a closed port", "tcp", Allowed4 + ":7", "x", "TCP to 203.0.113.10:7", ""},
		{"private", "tcp", "10.1.2.3:8080", get("example.test", "/"), "TCP to 10.1.2.3:8080", ""},
		{"nat64", "tcp", "[64:ff9b::a09:807]:80", get("example.test", "/"), "TCP to [64:ff9b::a09:807]:80", ""},
		{"6to4", "tcp", "[2002:a09:807::1]:80", get("example.test", "/"), "TCP to [2002:a09:807::1]:80", ""},
		{"reserved", "tcp", "240.1.2.3:80", get("example.test", "/"), "TCP to 240.1.2.3:80", ""},
		{"a greeting", "tcp", "10.1.2.3:25", "", "TCP to 10.1.2.3:25", ""},
		{"udp", "udp", Allowed4 + ":443", "x", "UDP to 203.0.113.10:443", ""},
		{"udp 6", "udp", "[2001:db8::9]:8443", "x", "UDP to [2001:db8::9]:8443", ""},
		{"dns", "udp", Resolver4 + ":53", query("example.test", 1), "", "dns example.test"},
		{"dns of another", "udp", Resolver4 + ":53", query("evil.test", 1), `asked for "evil.test"`, ""},
		{"dns text", "udp", Resolver4 + ":53", query("example.test", 16), "type 16", ""},
		{"dns capitals", "udp", Resolver4 + ":53", query("Example.test", 1), "capitals", ""},
		{"another resolver", "udp", "203.0.113.54:53", query("example.test", 1), "UDP to 203.0.113.54:53", ""},
		{"the host", "tcp", Host4 + ":7070", "x", "own service on 198.51.100.1:7070", ""},
		{"loopback", "tcp", "127.0.0.1:8080", "x", "own service on 127.0.0.1:8080", ""},
	} {
		w.Begin(nil)
		said := say(tt.network, tt.to, tt.text)
		seen := w.End()
		hits := ""
		for h := range seen.Hits {
			hits += h + "; "
		}
		if (tt.hit == "") != (hits == "") || !strings.Contains(hits, tt.hit) {
			t.Errorf("%s: hits %q, want %q; it said %q", tt.name, hits, tt.hit, said)
		}
		if tt.good != "" && !seen.Good[tt.good] {
			t.Errorf("%s: %v, want %q; it said %q", tt.name, seen.Good, tt.good, said)
		}
		if said == "" || tt.name != "a closed port" && strings.Contains(said, "timeout") {
			t.Errorf("%s: no answer: %q", tt.name, said)
		}
	}
}

func TestBuildRefusesANetworkInUse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it nothing can be built anyway")
	}
	cards := func() (out string) {
		ifs, _ := net.Interfaces()
		for _, i := range ifs {
			out += i.Name + " "
		}
		return out
	}
	before := cards()
	if _, err := Build(); err == nil {
		t.Fatal("a world was built in a network that is in use")
	}
	if after := cards(); after != before {
		t.Errorf("network cards were %s and are %s", before, after)
	}
}

// TestFrame: what must never be silent, and what a kernel says by itself.
func TestFrame(t *testing.T) {
	eth := func(kind string, b ...byte) []byte {
		return append([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"+kind), b...)
	}
	ip4 := func(first, proto byte, dst [4]byte, b ...byte) []byte {
		h := []byte{first, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 198, 51, 100, 1, dst[0], dst[1], dst[2], dst[3]}
		return eth("\x08\x00", append(h, b...)...)
	}
	tcp := func(port, flags byte) []byte {
		return append([]byte{0, 9, 0x1f, port, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags}, make([]byte, 8)...)
	}
	good := [4]byte{203, 0, 113, 10}
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"syn to the allowed port", ip4(0x45, 6, good, tcp(0x90, 2)...), ""},
		{"syn to another", ip4(0x45, 6, good, tcp(0x91, 2)...), "TCP to"},
		{"christmas", ip4(0x45, 6, good, tcp(0x90, 0x29)...), "flags"},
		{"no flags", ip4(0x45, 6, good, tcp(0x90, 0)...), "flags"},
		{"echo", ip4(0x45, 1, good, 8, 0, 0, 0), "ICMP to"},
		{"port unreachable", ip4(0x45, 1, good, 3, 3, 0, 0), ""},
		{"options", ip4(0x46, 6, good, make([]byte, 24)...), "options"},
		{"another protocol", ip4(0x45, 47, good), "protocol 47"},
		{"short", ip4(0x45, 6, good, 1, 2), "none"},
		{"another type", eth("\x88\xcc", 1, 2, 3), "0x88cc"},
		{"nothing", nil, "none"},
		{"arp", eth("\x08\x06", make([]byte, 28)...), "ARP"},
	} {
		if got := frame(tt.b); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
