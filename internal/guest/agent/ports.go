package agent

import (
	"strconv"
	"strings"
)

// parsePorts reads /proc/net/tcp or tcp6: the local ports of what listens, on
// loopback or on all addresses.
func parsePorts(s string) (ports []int) {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" { // TCP_LISTEN
			continue
		}
		addr, hex, _ := strings.Cut(f[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil || port == 0 {
			continue
		}
		switch {
		case strings.Trim(addr, "0") == "": // any
		case addr == "0100007F": // 127.0.0.1
		case addr == "00000000000000000000000001000000": // ::1
		case addr == "0000000000000000FFFF00000100007F": // 127.0.0.1 by another name
		default:
			continue
		}
		ports = append(ports, int(port))
	}
	return ports
}
