package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/internal/egress/wire"
)

func TestHasLink(t *testing.T) {
	const head = "Inter-|   Receive                |  Transmit\n face |bytes    packets\n"
	for dev, want := range map[string]bool{
		"":                            false,
		head + "    lo: 0 0\n":        false,
		head + "    lo: 0\n  eth0: 0": true,
		head + "eth0:0 0\n":           true,
		head + "veth0: 0\n":           false,
		head + "eth01: 0\n":           false,
	} {
		if got := hasLink(dev); got != want {
			t.Errorf("%q: %v", dev, got)
		}
	}
}

func TestWriteResolv(t *testing.T) {
	if gatewayDNS != wire.Gateway4.String() {
		t.Errorf("the gateway is %s", wire.Gateway4)
	}
	for name, before := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"a file": func(p string) error {
			os.Mkdir(filepath.Dir(p), 0o755)
			return os.WriteFile(p, []byte("nameserver 10.0.0.1\nand more, so that it is longer than ours, and more, and more\n"), 0o400)
		},
		"a link": func(p string) error {
			os.Mkdir(filepath.Dir(p), 0o755)
			return os.Symlink("../stub", p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stub := filepath.Join(dir, "stub")
			if err := os.WriteFile(stub, []byte("theirs"), 0o600); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "etc", "resolv.conf")
			if err := before(path); err != nil {
				t.Fatal(err)
			}
			if err := writeResolv(path); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil || string(b) != "nameserver 192.0.0.1\noptions timeout:2 attempts:2\n" {
				t.Errorf("%q, %v", b, err)
			}
			if fi, err := os.Lstat(path); err != nil || fi.Mode() != 0o644 {
				t.Errorf("%v, %v", fi.Mode(), err)
			}
			if b, _ := os.ReadFile(stub); string(b) != "theirs" {
				t.Errorf("what a link led to is now %q", b)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o644)
	if err := writeResolv(filepath.Join(file, "resolv.conf")); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("where it cannot be written: %v", err)
	}
}
