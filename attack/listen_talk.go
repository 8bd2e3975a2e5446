package attack

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
)

// What follows speaks just enough of each protocol to hand out a secret. Callers
// are hostile: what they send is bounded, and none of it is kept.

// sshAgent lists one key, whose comment is the secret, and signs with it. It says
// what it was asked for.
func sshAgent(c net.Conn, secret string, asked func(what string)) {
	for range 16 {
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		b := make([]byte, min(binary.BigEndian.Uint32(head[:]), 4096))
		if _, err := io.ReadFull(c, b); err != nil || len(b) == 0 {
			return
		}
		answer := []byte{5} // failure
		switch b[0] {
		case 11:
			asked("the list of keys")
			key := append(sshString("ssh-ed25519"), sshString(strings.Repeat("k", 32))...)
			answer = append([]byte{12, 0, 0, 0, 1}, append(sshString(string(key)), sshString(secret)...)...)
		case 13:
			asked("a signature")
			answer = append([]byte{14}, sshString(string(append(sshString("ssh-ed25519"), sshString(secret)...)))...)
		}
		c.Write(sshString(string(answer)))
	}
}

func sshString(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// gpgAgent answers every line with the secret, as to a question for a passphrase.
func gpgAgent(c net.Conn, secret string) {
	fmt.Fprint(c, "OK Pleased to meet you\n")
	in := bufio.NewScanner(io.LimitReader(c, 4096))
	for in.Scan() {
		fmt.Fprintf(c, "D %s\nOK\n", secret)
	}
}

// gitCache answers what git's own cache of credentials is asked.
func gitCache(c net.Conn, secret string) {
	in := bufio.NewScanner(io.LimitReader(c, 4096))
	for in.Scan() && in.Text() != "" {
		if strings.HasPrefix(in.Text(), "host=") {
			break // it ends with no more than its end
		}
	}
	fmt.Fprintf(c, "username=none\npassword=%s\n", secret)
}

// messageBus lets anybody in and answers the first call with the secret.
func messageBus(c net.Conn, secret string) {
	in := bufio.NewReader(io.LimitReader(c, 4096))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "BEGIN") {
			break
		}
		fmt.Fprintf(c, "OK %s\r\n", strings.Repeat("0", 32))
	}
	if _, err := in.Peek(16); err != nil {
		return
	}
	body := append(binary.LittleEndian.AppendUint32(nil, uint32(len(secret))), secret+"\x00"...)
	fields := "\x05\x01u\x00\x01\x00\x00\x00" + "\x08\x01g\x00\x01s\x00" // in answer to message 1, of one string
	m := []byte{'l', 2, 0, 1}                                            // an answer
	m = binary.LittleEndian.AppendUint32(m, uint32(len(body)))
	m = binary.LittleEndian.AppendUint32(m, 1)
	m = binary.LittleEndian.AppendUint32(m, uint32(len(fields)))
	m = append(m, fields...)
	for len(m)%8 != 0 {
		m = append(m, 0)
	}
	c.Write(append(m, body...))
}

// xServer turns a client away, and the reason is the secret.
func xServer(c net.Conn, secret string) {
	var head [12]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	n := (len(secret) + 3) / 4
	answer := []byte{0, byte(len(secret)), 11, 0, 0, 0, byte(n), 0}
	c.Write(append(append(answer, secret...), make([]byte, 4*n-len(secret))...))
}

// waylandServer has one thing to offer, whose name is the secret.
func waylandServer(c net.Conn, secret string) {
	var request [12]byte // the registry, please
	if _, err := io.ReadFull(c, request[:]); err != nil {
		return
	}
	name := secret + "\x00"
	size := 8 + 4 + 4 + (len(name)+3)/4*4 + 4
	m := append([]byte(nil), request[8:12]...) // from the registry
	m = binary.LittleEndian.AppendUint32(m, uint32(size)<<16)
	m = binary.LittleEndian.AppendUint32(m, 1)
	m = binary.LittleEndian.AppendUint32(m, uint32(len(name)))
	m = append(m, name...)
	for len(m) < size-4 {
		m = append(m, 0)
	}
	c.Write(binary.LittleEndian.AppendUint32(m, 1))
}

// webServer answers any request, as engines and metadata services do.
func webServer(c net.Conn, secret string) {
	in := bufio.NewScanner(io.LimitReader(c, 4096))
	for in.Scan() && in.Text() != "" {
	}
	body := fmt.Sprintf(`[{"Id":"none","Env":["TOKEN=%s"]}]`, secret)
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}
