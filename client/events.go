package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bermhq/berm/api"
)

// An EventQuery selects events. The zero value is all of them.
type EventQuery struct {
	After     uint64 // only with a higher Seq
	FromEnd   bool   // only those that are still to come; After is not looked at
	Limit     int    // 0 is the server's
	Types     []string
	SandboxID string
	RunID     string
	Session   string
	Wait      time.Duration // of Events: how long to wait for the first
}

func (q EventQuery) values() url.Values {
	v := url.Values{"after": {strconv.FormatUint(q.After, 10)}}
	if q.FromEnd {
		v.Set("after", "end")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	for _, t := range q.Types {
		v.Add("type", t)
	}
	for k, s := range map[string]string{"sandbox_id": q.SandboxID, "run_id": q.RunID, "session": q.Session} {
		if s != "" {
			v.Set(k, s)
		}
	}
	return v
}

// Events returns one page of events; the next begins after Next.
func (c *Client) Events(ctx context.Context, q EventQuery) (l api.EventList, err error) {
	v := q.values()
	if q.Wait > 0 {
		v.Set("wait", strconv.FormatFloat(q.Wait.Seconds(), 'f', -1, 64))
	}
	err = c.call(ctx, http.MethodGet, withQuery("/v1/events", v), nil, &l)
	return l, err
}

// FollowEvents gives f the events that there are and those that come, until ctx
// is over or f returns an error; io.EOF is a good end. After a broken
// connection it can be called again with the Seq of the last one.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, f func(api.Event) error) error {
	v := q.values()
	v.Set("follow", "1")
	return c.stream(ctx, withQuery("/v1/events", v), func(name string, data []byte) error {
		var e api.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("an event is not what the API says: %w", err)
		}
		if e.Seq == 0 { // a word of the stream's own
			return nil
		}
		return f(e)
	})
}

// Broken says that an error is one of the connection: what was followed may be
// asked for again.
func Broken(err error) bool { return errors.As(err, new(broken)) }

// AuditHead is where the audit log ends now.
func (c *Client) AuditHead(ctx context.Context) (h api.Head, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/audit/head", nil, &h)
	return h, err
}

// AuditVerify has the server prove its log, up to a head that was kept if there
// is one.
func (c *Client) AuditVerify(ctx context.Context, head *api.Head) (v api.Verification, err error) {
	var in any
	if head != nil {
		in = head
	}
	err = c.call(ctx, http.MethodPost, "/v1/audit/verify", in, &v)
	return v, err
}

// AuditExport is the whole log as it is kept, for `berm audit verify FILE`.
func (c *Client) AuditExport(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, "/v1/audit/export", nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// AuditReport says what a sandbox, a run or a session did.
func (c *Client) AuditReport(ctx context.Context, subject string) (r api.Report, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/audit/report/"+url.PathEscape(subject), nil, &r)
	return r, err
}

// LogOptions say which log lines.
type LogOptions struct {
	Follow bool
	Tail   int    // the last lines only; 0: all that is kept
	Stream string // stdout, stderr; "" is both
}

// Logs copies the log of a sandbox to w; with Follow it goes on until the
// sandbox or ctx ends.
func (c *Client) Logs(ctx context.Context, id string, o LogOptions, w io.Writer) error {
	q := url.Values{}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	if o.Stream != "" {
		q.Set("stream", o.Stream)
	}
	if !o.Follow {
		resp, err := c.do(ctx, http.MethodGet, withQuery(sandboxPath(id, "/logs"), q), nil, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(w, resp.Body)
		return err
	}
	q.Set("follow", "1")
	return c.stream(ctx, withQuery(sandboxPath(id, "/logs"), q), func(name string, data []byte) error {
		switch name {
		case "line":
			var l api.LogLine
			if err := json.Unmarshal(data, &l); err != nil {
				return fmt.Errorf("a line is not what the API says: %w", err)
			}
			_, err := io.WriteString(w, l.Line)
			return err
		case "end", "exit":
			return io.EOF
		}
		return nil
	})
}
