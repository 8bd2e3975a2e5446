package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// maxBody bounds every JSON request.
const maxBody = 1 << 20

// body reads the whole of a small body. It must be there within the timeout of
// one read, however its bytes trickle.
func body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if _, large := err.(*http.MaxBytesError); !large {
			err = &api.Error{Code: api.CodeBadRequest, Message: "the request body did not arrive whole"}
		}
		return nil, err
	}
	// The connection is watched for the client's leaving from here on; a
	// deadline that strikes would look like that.
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	return b, nil
}

// decode reads the one JSON object of a request, strictly.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := body(w, r, maxBody)
	if err != nil {
		return err
	}
	return decodeBytes(b, v)
}

func decodeBytes(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		why := &api.Error{Code: api.CodeBadRequest, Message: "request body: " + strings.TrimPrefix(err.Error(), "json: ")}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			why.Message, why.Hint = "request body: it ends too early", "send one whole JSON object"
		case strings.Contains(err.Error(), "unknown field") && reflect.TypeOf(v).Elem().Kind() == reflect.Struct:
			why.Hint = "at the top " + namesAre(jsonNames(reflect.TypeOf(v).Elem()))
		}
		return why
	}
	if _, err := d.Token(); err != io.EOF {
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: something follows the object"}
	}
	return nil
}

// stream returns a body of any size. Its bytes may take any time, but not a
// pause longer than the read timeout.
func (s *server) stream(w http.ResponseWriter, r *http.Request) io.Reader {
	return &paced{r: r.Body, rc: http.NewResponseController(w), pause: s.opt.ReadTimeout, ctx: r.Context()}
}

type paced struct {
	r     io.Reader
	rc    *http.ResponseController
	pause time.Duration
	ctx   context.Context
}

func (p *paced) Read(b []byte) (int, error) {
	p.rc.SetReadDeadline(time.Now().Add(p.pause))
	if err := p.ctx.Err(); err != nil { // after the deadline: who ends the context sets one as well
		return 0, context.Cause(p.ctx)
	}
	n, err := p.r.Read(b)
	if err == io.EOF {
		p.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// nothing reads the body of a request that has no parameters: none at all, or
// an empty object.
func nothing(w http.ResponseWriter, r *http.Request) error {
	b, err := body(w, r, 4<<10)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	return decodeBytes(b, &struct{}{})
}

// bare is a handler of a route that has no parameters.
func bare(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := params(r, nil, nil); err != nil {
			return err
		}
		return h(w, r)
	}
}

// query returns one parameter, and refuses those that the route does not know.
func query(r *http.Request, name string, more ...string) (string, error) {
	q, err := params(r, append(more, name), nil)
	return q.Get(name), err
}

// params returns the parameters of a request: those that may be there once and
// those that may be repeated, where "tag.*" is every name that starts so. Any
// other is refused.
func params(r *http.Request, single, repeated []string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "the part of the address after ? is not well formed"}
	}
	for k, v := range q {
		if slices.ContainsFunc(repeated, func(n string) bool {
			prefix, open := strings.CutSuffix(n, "*")
			return k == n || open && len(k) > len(prefix) && strings.HasPrefix(k, prefix)
		}) {
			continue
		}
		if !slices.Contains(single, k) {
			return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("parameter %q is not known", clip(k)), Hint: namesAre(single, repeated)}
		}
		if len(v) > 1 {
			return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("parameter %q is there twice", clip(k))}
		}
	}
	return q, nil
}

// namesAre is the hint for a name that is none of these.
func namesAre(names ...[]string) string {
	all := slices.Concat(names...)
	if len(all) == 0 {
		return "leave it out: there are none here"
	}
	slices.Sort(all)
	return "the names are " + strings.Join(all, ", ")
}

// truth is a switch: 1 or true, 0 or false.
func truth(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "1", "true":
		return true, nil
	case "", "0", "false":
		return false, nil
	}
	return false, &api.Error{Code: api.CodeBadRequest, Message: name + ": 1 or 0 is expected"}
}

// number is a whole number within bounds; def if it is absent or empty.
func number(q url.Values, name string, def, least, most uint64) (uint64, error) {
	if q.Get(name) == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		return 0, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("%s: a number from %d to %d is expected", name, least, most)}
	}
	return n, nil
}

// seconds is a time from nothing to most seconds, fractions too; absent or
// empty is nothing.
func seconds(q url.Values, name string, most float64) (time.Duration, error) {
	if q.Get(name) == "" {
		return 0, nil
	}
	f, err := strconv.ParseFloat(q.Get(name), 64)
	if err != nil || !(f >= 0 && f <= most) {
		return 0, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("%s: seconds from 0 to %g are expected", name, most)}
	}
	return time.Duration(f * float64(time.Second)), nil
}
