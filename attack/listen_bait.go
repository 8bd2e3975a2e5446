package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// talkTime is the longest that one caller is listened to.
const talkTime = 3 * time.Second

// talkers opens servers that hand out a credential to whoever asks, in the words
// of those that keep credentials on a person's machine. Each counts its callers,
// and what each hands out is a canary of its own.
func (l *lure) talkers(p *planting) error {
	agent := func(at string) func(net.Conn, string) {
		return func(c net.Conn, secret string) {
			sshAgent(c, secret, func(what string) { l.called(what + " of " + at) })
		}
	}
	for _, s := range []struct {
		kind, path string
		talk       func(c net.Conn, secret string)
	}{
		{"ssh-agent", "ssh.sock", agent(filepath.Join(p.dir, "ssh.sock"))},
		{"gpg-agent", "S.gpg-agent", gpgAgent},
		{"git-cache", "git.sock", gitCache},
		{"dbus", "bus", messageBus},
		{"x11", "X0", xServer},
		{"wayland", "wayland-0", waylandServer},
		{"engine", "docker.sock", webServer},
		{"daemon", "berm.sock", webServer},
	} {
		path := filepath.Join(p.dir, s.path)
		v := newCanary()
		err := l.unix(path, func(c net.Conn) { s.talk(c, v) })
		if errors.Is(err, os.ErrInvalid) || len(path) > maxUnixPath {
			p.lack(s.kind, fmt.Errorf("%s is too long for a socket", path))
			continue
		}
		if err != nil {
			return err
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return err
		}
		p.note(s.kind, path, "what "+s.path+" hands out", v)
	}
	if b := p.kind("ssh-agent"); len(b.at) > 0 && os.Getenv("SSH_AUTH_SOCK") == "" {
		os.Setenv("SSH_AUTH_SOCK", b.at[0])
		p.vars = append(p.vars, "SSH_AUTH_SOCK")
	}
	v := newCanary()
	abstract := p.word + "-agent"
	if err := l.unix("@"+abstract, func(c net.Conn) { agent(abstract)(c, v) }); err != nil {
		return err
	}
	p.note("abstract", abstract, "what the abstract socket hands out", v)
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		v := newCanary()
		port, err := l.tcp("tcp", at, func(c net.Conn) { webServer(c, v) })
		if err != nil {
			p.lack("loopback", err)
			continue
		}
		host, _, _ := net.SplitHostPort(at)
		at := net.JoinHostPort(host, fmt.Sprint(port))
		p.note("loopback", at, "what the server on "+at+" hands out", v)
	}
	return nil
}

// maxUnixPath is how long the path of a socket may be.
const maxUnixPath = 107

// plantState plants a credential beside those that Berm itself keeps: its token,
// its keys and what is recorded lie in the state directory.
func (p *planting) plantState(dir string) {
	if dir == "" {
		p.lack("state", errors.New("what is attacked has no state directory"))
		return
	}
	if err := p.file("state", filepath.Join(dir, p.word+".token"), "%s\n", 0o600); err != nil {
		p.lack("state", err)
	}
}
