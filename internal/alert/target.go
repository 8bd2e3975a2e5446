package alert

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	webhookAttempts = 10 // about five minutes
	commandAttempts = 3
	maxAnswer       = 64 << 10
	maxStderr       = 4 << 10
)

// Headers of a webhook's request.
const (
	SignatureHeader = "Berm-Signature" // t=UNIX,v1=HEX: see Sign
	DeliveryHeader  = "Berm-Delivery"  // id of the event; the same when it comes again
)

// Sign is the signature of a webhook's body: HMAC-SHA256 with the rule's secret
// over the time in seconds, a point, and the body. A receiver makes it again,
// compares in constant time, and refuses what is some minutes old.
func Sign(secret string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", at.Unix())
	mac.Write(body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// target is where alerts go.
type target interface {
	send(ctx context.Context, m Message, now time.Time) error
	attempts() int
}

// finalError is one that trying again does not change.
type finalError struct{ error }

func newTarget(r *Rule, slots chan struct{}) target {
	if r.Webhook != "" {
		return &webhook{url: r.Webhook, secret: r.Secret, client: &http.Client{
			// No proxy of the environment, no connection kept for ever.
			Transport:     &http.Transport{MaxConnsPerHost: 1, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: maxAnswer},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
	}
	return &command{args: r.Command, slots: slots}
}

type webhook struct {
	url, secret string
	client      *http.Client
}

func (w *webhook) attempts() int { return webhookAttempts }

func (w *webhook) send(ctx context.Context, m Message, now time.Time) error {
	body, err := json.Marshal(m)
	if err != nil {
		return finalError{err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return finalError{err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "berm")
	req.Header.Set(SignatureHeader, Sign(w.secret, now, body))
	req.Header.Set(DeliveryHeader, m.Event.ID)
	res, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer)
	switch c := res.StatusCode; {
	case c >= 200 && c < 300:
		return nil
	case c >= 300 && c < 400:
		return finalError{fmt.Errorf("the webhook answers %d, and redirects are not followed", c)}
	case c >= 500 || c == http.StatusTooManyRequests || c == http.StatusRequestTimeout:
		return fmt.Errorf("the webhook answers %d", c)
	default:
		return finalError{fmt.Errorf("the webhook answers %d", c)}
	}
}

type command struct {
	args  []string
	slots chan struct{}
}

func (c *command) attempts() int { return commandAttempts }

// send runs the program with the message on its standard input. It gets nothing
// of the daemon's environment but PATH, and when its time is over it ends with
// its whole process group.
func (c *command) send(ctx context.Context, m Message, _ time.Time) error {
	body, err := json.Marshal(m)
	if err != nil {
		return finalError{err}
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	var stderr last
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Env = []string{"PATH=" + path}
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(append(body, '\n'))
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it is done; what it left behind holds its output open
		err = nil
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return finalError{err}
	}
	if err != nil && len(stderr.text) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.ToValidUTF8(string(stderr.text), "\ufffd"))
	}
	return err
}

// last keeps the end of what is written.
type last struct{ text []byte }

func (l *last) Write(p []byte) (int, error) {
	l.text = append(l.text, p[max(0, len(p)-maxStderr):]...)
	if n := len(l.text); n > maxStderr {
		l.text = append([]byte(nil), l.text[n-maxStderr:]...)
	}
	return len(p), nil
}
