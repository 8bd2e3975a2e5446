package agent

import (
	"os"
	"path/filepath"
	"strings"
)

// gatewayDNS is the gateway's address, and a guest's only name server. It has an
// IPv6 one too, which is left out: some libraries ask all servers at once, and
// both are the same.
const gatewayDNS = "192.0.0.1"

const resolvConf = "/etc/resolv.conf"

// What the first process of a guest is called, and that of a stacked one.
const (
	guestPath   = "/.berm/agent"
	stackedPath = "/agent"
)

// Resolve has names resolved by the gateway, if this guest has a link. A root
// that cannot be written only goes without names. It does nothing anywhere but
// in a guest: run by hand or by a test, the root is that of a host.
func Resolve() error {
	if os.Getpid() != 1 || os.Args[0] != guestPath && os.Args[0] != stackedPath {
		return nil
	}
	dev, err := os.ReadFile("/proc/net/dev")
	if err != nil || !hasLink(string(dev)) {
		return err
	}
	err = writeResolv(resolvConf)
	track.resolved()
	return err
}

// hasLink says whether /proc/net/dev lists the wire.
func hasLink(dev string) bool {
	for line := range strings.Lines(dev) {
		if strings.HasPrefix(strings.TrimSpace(line), "eth0:") {
			return true
		}
	}
	return false
}

// writeResolv puts our file in the place of whatever is there: a link of the
// template's leads to a program that does not run here.
func writeResolv(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("nameserver " + gatewayDNS + "\noptions timeout:2 attempts:2\n")
	if cerr := f.Chmod(0o644); err == nil { // whatever the umask is
		err = cerr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
