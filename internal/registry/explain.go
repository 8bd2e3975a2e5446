package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/bermhq/berm/api"
)

// A status is an answer other than 200, with what the registry said of it.
type status struct {
	code int
	host string
	said string
}

func (s *status) Error() string { return fmt.Sprintf("%s answered %d", s.host, s.code) }

func statusError(resp *http.Response) error {
	s := &status{code: resp.StatusCode}
	if resp.Request != nil {
		s.host = clean(resp.Request.URL.Host, 100)
	}
	var body struct {
		Errors []transport.Diagnostic `json:"errors"`
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(raw, &body) == nil && len(body.Errors) > 0 {
		s.said = said(body.Errors[0])
	}
	if asked, ok := retryAfter(resp); ok && asked > 0 {
		s.said = strings.TrimPrefix(s.said+"; come back in "+asked.Round(1e9).String(), "; ")
	}
	return s
}

func said(d transport.Diagnostic) string {
	return clean(strings.Trim(string(d.Code)+": "+d.Message, ": "), 200)
}

// explain makes of any error one that says what failed, why and what to do,
// without the addresses that a registry has sent us on to, or what was shown
// to it.
func (p *puller) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var known *api.Error
	if !errors.As(err, &known) {
		known = p.judge(err)
	}
	out := *known
	for _, secret := range []string{p.login.Password, p.login.IdentityToken, p.login.RegistryToken} {
		if len(secret) >= 4 {
			out.Message = strings.ReplaceAll(out.Message, secret, "***")
		}
	}
	return &out
}

func (p *puller) judge(err error) *api.Error {
	host := p.ref.Context().RegistryStr()
	var st *status
	var lib *transport.Error
	if errors.As(err, &lib) {
		st = &status{code: lib.StatusCode, host: host}
		if len(lib.Errors) > 0 {
			st.said = said(lib.Errors[0])
		}
	}
	if st != nil || errors.As(err, &st) {
		return p.judgeStatus(st)
	}
	return p.judgeWire(host, err)
}

func (p *puller) judgeStatus(st *status) *api.Error {
	tail := ""
	if st.said != "" {
		tail = ", " + st.said
	}
	switch st.code {
	case http.StatusNotFound:
		return &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("%s: %s does not have it%s", p.what, st.host, tail),
			Hint: "check name and tag; a registry other than docker.io is part of the name"}
	case http.StatusUnauthorized, http.StatusForbidden:
		host := p.ref.Context().RegistryStr()
		e := &api.Error{Code: api.CodeRegistryDenied, Message: fmt.Sprintf("%s: %s does not give it to %s (or has no such image)%s", p.what, st.host, p.who(), tail),
			Hint: "docker login " + host + ", or podman login " + host + ": what they keep is used"}
		if p.noted != nil {
			e.Message += "; " + clean(p.noted.Error(), 300)
		}
		return e
	case http.StatusTooManyRequests:
		return &api.Error{Code: api.CodeRegistryUnreachable, Message: fmt.Sprintf("%s: %s answers no more requests for now%s", p.what, st.host, tail),
			Hint: "wait, or log in: docker login " + p.ref.Context().RegistryStr()}
	}
	return &api.Error{Code: api.CodeRegistryUnreachable, Message: fmt.Sprintf("%s: %s answered %d%s", p.what, st.host, st.code, tail),
		Hint: "try again later"}
}

func (p *puller) who() string {
	if p.login == (Login{}) {
		return "somebody without a login"
	}
	return "this login"
}

func (p *puller) judgeWire(host string, err error) *api.Error {
	out := &api.Error{Code: api.CodeRegistryUnreachable, Hint: "check the name and the network; HTTPS_PROXY and NO_PROXY name a proxy, SSL_CERT_FILE certificates"}
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var netErr net.Error
	var file *fs.PathError
	why := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return &api.Error{Code: api.CodeHostFailure, Message: p.what + ": there is no room for its layers", Hint: "make room below the state directory: berm template rm NAME"}
	case errors.As(err, &file):
		return &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("%s: its layers cannot be kept: %v", p.what, file.Err), Hint: "berm doctor"}
	case errors.Is(err, errPlain):
		why = "it sent us to where there would be no TLS"
		if strings.Contains(err.Error(), host+": "+errPlain.Error()) {
			why = "it speaks no HTTPS, and plain HTTP is not allowed for it"
			out.Hint = "put TLS before it, or allow it: --plain-http " + host
		}
	case errors.Is(err, errStalled), errors.Is(err, context.DeadlineExceeded):
		why, out.Hint = "it sent next to nothing for too long", "try again; a smaller image may come through"
	case errors.Is(err, errRedirect):
		return refused(p.what, "%s sends us round in circles, or to a private address", host)
	case errors.Is(err, errAnswer):
		return refused(p.what, "%s answers with more than an answer of its kind may have", host)
	case errors.As(err, &unknown), errors.As(err, &cert):
		why, out.Hint = "its certificate is not trusted here", "name the certificates of who signed it: SSL_CERT_FILE=FILE"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		why, out.Hint = "it speaks no TLS", "put TLS before it, or allow plain HTTP: --plain-http "+host
	case errors.As(err, &dns):
		why = "its name cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "the connection was refused"
	case errors.As(err, &netErr) && netErr.Timeout():
		why = "it does not answer in time"
	default:
		why = plainCause(err)
	}
	out.Message = fmt.Sprintf("%s: no talking to %s: %s", p.what, host, why)
	return out
}

// plainCause is the innermost reason, without the address that was asked: a
// registry may have put a secret of its own in it.
func plainCause(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	text := err.Error()
	for _, word := range strings.Fields(text) {
		if strings.Contains(word, "://") {
			text = strings.ReplaceAll(text, word, "(an address)")
		}
	}
	return clean(text, 200)
}
