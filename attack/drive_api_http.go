package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// maxAnswer is how much of an answer is looked at.
const maxAnswer = 1 << 20

// waitFor is how long an answer may take; a stream without an end is cut then.
const waitFor = 2 * time.Second

// send asks for something with a token, "" for none, exactly as it is spelled.
// What comes back is looked through for what is not the asker's. It is the
// status, for what the attack does next; no verdict follows from it.
func (s *siege) send(ctx context.Context, token, method, path, body string, header ...string) (status int, answer string) {
	return s.talk(ctx, s.request(token, method, path, body, header...), waitFor)
}

// request is the text of one.
func (s *siege) request(token, method, path, body string, header ...string) string {
	var b strings.Builder
	host := "Host: " + s.host()
	for _, h := range header {
		if strings.HasPrefix(h, "Host:") {
			host = ""
		}
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, path)
	if host != "" {
		b.WriteString(host + "\r\n")
	}
	if token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", token)
	}
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("Connection: close\r\n\r\n" + body)
	return b.String()
}

// talk sends bytes and reads what comes until the other side ends it.
func (s *siege) talk(ctx context.Context, text string, wait time.Duration) (status int, answer string) {
	s.sent.Add(1)
	conn, err := s.dial(ctx)
	if err != nil {
		return 0, ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wait))
	go io.WriteString(conn, text) // it may be refused half way
	var b bytes.Buffer
	io.Copy(&b, io.LimitReader(conn, maxAnswer))
	answer = b.String()
	s.heard(answer)
	fmt.Sscanf(answer, "HTTP/1.1 %d", &status)
	if status > 0 && status != http.StatusTooManyRequests {
		s.answered.Add(1)
	}
	return status, answer
}

// heard looks through what was answered.
func (s *siege) heard(answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Bytes += int64(len(answer))
	s.o.Leaks = union(s.o.Leaks, scanText(s.secrets, "what the attacker was answered", answer))
}

// audit is the log of every tenant, as the admin exports it, from a number on.
func (s *siege) audit(ctx context.Context, after uint64, types []string) (out []api.Event, err error) {
	r, err := s.admin.AuditExport(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	lines := bufio.NewScanner(io.LimitReader(r, 64<<20))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var line struct {
			Event *api.Event `json:"event"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Event == nil || line.Event.Seq <= after {
			continue
		}
		if len(types) == 0 || slices.Contains(types, line.Event.Type) {
			out = append(out, *line.Event)
		}
	}
	return out, lines.Err()
}

func decodeInto(raw json.RawMessage, v any) bool { return json.Unmarshal(raw, v) == nil }

// crowd does something n times, at most at a time of them at once.
func crowd(n, atOnce int, do func(i int)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			do(i)
		})
	}
	wg.Wait()
}
