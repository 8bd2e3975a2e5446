package preset

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
)

// A command is one call of a client.
type command struct {
	args []string
	env  []string // beside our own
	dir  string   // "" is /, where no project's settings are
	fail bool     // it is expected to fail; what it says is wanted all the same
}

// run returns what the client printed, on both streams if it is to fail.
func (c command) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir = c.dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	// Plain English, of one line a paragraph.
	cmd.Env = append(os.Environ(), append([]string{"LC_ALL=C.UTF-8", "COLUMNS=4000", "NO_COLOR=1", "PWD=" + cmd.Dir}, c.env...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // shims start others
	cmd.WaitDelay = time.Second
	var out, errs bounded
	cmd.Stdout, cmd.Stderr = &out, &errs
	if c.fail {
		cmd.Stderr = &out
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return "", fmt.Errorf("%s: no answer within %s", c, askFor)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case c.fail && errors.As(err, &exit):
		err = nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%s is not installed on this host", c.args[0])
	case err != nil:
		return "", fmt.Errorf("%s: %w: %s", c, err, redact(lastLine(errs.String())))
	}
	return out.String(), err
}

func (c command) String() string { return strings.Join(c.args, " ") }

// bounded keeps the first of what is written.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), 200)]
}

var userinfo = regexp.MustCompile(`://[^/\s]*@`)

// redact takes user names and passwords out of URLs in a text.
func redact(s string) string { return userinfo.ReplaceAllString(s, "://") }

// installed is the first of these programs that there is, or the first.
func installed(names ...string) string {
	for _, n := range names {
		if _, err := exec.LookPath(n); err == nil {
			return n
		}
	}
	return names[0]
}

// bundles are where distributions keep the certificates of authorities; the host
// template has the same.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"}

// trust is where the certificates are inside that a client of this host was told
// to trust: of the first path that is not "". "" if it was told nothing, or
// nothing that can be read.
func (s *Settings) trust(paths ...string) string {
	for _, p := range paths {
		if p == "" {
			continue
		}
		for _, b := range bundles {
			if p == b {
				return p
			}
		}
		certs := certificates(p, maxCA)
		if certs == "" {
			continue // a bundle of its own; the system's will do
		}
		const name = ".config/berm/ca.pem"
		s.CA = certs
		s.file(name, s.CA)
		return api.GuestHome + "/" + name
	}
	return ""
}

// maxAuthorities bounds the host's whole bundle, in bytes.
const maxAuthorities = 1 << 20

// Authorities are the certificates of authorities that this host trusts, as
// PEM: of SSL_CERT_FILE, else of the distribution's bundle; "" where there are
// none, or too many.
func Authorities() string {
	for _, p := range append([]string{os.Getenv("SSL_CERT_FILE")}, bundles...) {
		if p == "" {
			continue
		}
		if certs := certificates(p, maxAuthorities); certs != "" {
			return certs
		}
	}
	return ""
}

// certificates are those of a PEM file and nothing else of it; "" if there are
// none, or more bytes than most.
func certificates(name string, most int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	var certs bytes.Buffer
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" { // a key may stand beside it
			block.Headers = nil
			pem.Encode(&certs, block)
		}
	}
	if certs.Len() > most {
		return ""
	}
	return certs.String()
}
