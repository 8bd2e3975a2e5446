package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
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
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	if _, err := d.Token(); err != io.EOF {
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: something follows the object"}
	}
	return nil
}

// stream returns a body of any size. Its bytes may take any time, but not a
// pause longer than the read timeout.
func (s *server) stream(w http.ResponseWriter, r *http.Request) io.Reader {
	return &paced{r: r.Body, rc: http.NewResponseController(w), pause: s.opt.ReadTimeout}
}

type paced struct {
	r     io.Reader
	rc    *http.ResponseController
	pause time.Duration
}

func (p *paced) Read(b []byte) (int, error) {
	p.rc.SetReadDeadline(time.Now().Add(p.pause))
	n, err := p.r.Read(b)
	if err == io.EOF {
		p.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// query returns one parameter, and refuses those that the route does not know.
func query(r *http.Request, name string, more ...string) (string, error) {
	q := r.URL.Query()
	for k, v := range q {
		if k != name && !slices.Contains(more, k) {
			return "", &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("parameter %.40q is not known", k)}
		}
		if len(v) > 1 {
			return "", &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("parameter %.40q is there twice", k)}
		}
	}
	return q.Get(name), nil
}
