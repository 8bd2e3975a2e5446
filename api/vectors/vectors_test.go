package vectors_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// The files as README.md describes them.
type file struct {
	Vectors []vector `json:"vectors"`
}

type vector struct {
	Name    string          `json:"name"`
	Needs   []string        `json:"needs"`
	Sandbox json.RawMessage `json:"sandbox"`
	Steps   []step          `json:"steps"`
}

type step struct {
	Request struct {
		Method  string            `json:"method"`
		Path    string            `json:"path"`
		Query   [][2]string       `json:"query"`
		Headers map[string]string `json:"headers"`
		Token   string            `json:"token"`
		JSON    json.RawMessage   `json:"json"`
		Text    *string           `json:"text"`
		Base64  *string           `json:"base64"`
	} `json:"request"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	JSON    any               `json:"json"`
	Text    *string           `json:"text"`
	Base64  *string           `json:"base64"`
	Empty   bool              `json:"empty"`
	SSE     *struct {
		Text  map[string]string `json:"text"`
		Bytes map[string]string `json:"bytes"`
		First string            `json:"first"`
		Last  []any             `json:"last"`
		Stop  string            `json:"stop"`
	} `json:"sse"`
	Save map[string]string `json:"save"`
}

func load(t *testing.T) map[string]file {
	t.Helper()
	names, err := filepath.Glob("*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no vectors here: %v", err)
	}
	out := map[string]file{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		var f file
		if err := d.Decode(&f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[strings.TrimSuffix(name, ".json")] = f
	}
	return out
}

// A target is a server to replay against, and what it has of `needs`.
type target struct {
	url, token string
	has        []string
	http       *http.Client
}

func replay(t *testing.T, to target) {
	for name, f := range load(t) {
		for _, v := range f.Vectors {
			t.Run(name+"/"+v.Name, func(t *testing.T) {
				for _, need := range v.Needs {
					if !slices.Contains(to.has, need) {
						t.Skipf("this server has no %s", need)
					}
				}
				(&player{t, to, map[string]string{"exec": api.NewID(api.KindExec)}}).play(v)
			})
		}
	}
}

type player struct {
	t    *testing.T
	to   target
	vars map[string]string
}

var variable = regexp.MustCompile(`\$\{([a-z]+)\}`)

func (p *player) fill(s string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		v, ok := p.vars[m[2:len(m)-1]]
		if !ok {
			p.t.Fatalf("%s was not saved", m)
		}
		return v
	})
}

func (p *player) play(v vector) {
	if v.Sandbox != nil {
		made := step{Status: 201, Save: map[string]string{"id": "id"}}
		made.Request.Method, made.Request.Path, made.Request.JSON = "POST", "/v1/sandboxes", v.Sandbox
		p.step(0, made)
		defer func() {
			gone := step{Status: 204}
			gone.Request.Method, gone.Request.Path = "DELETE", "/v1/sandboxes/${id}"
			p.step(len(v.Steps)+1, gone)
		}()
	}
	for i, s := range v.Steps {
		p.step(i+1, s)
	}
}

func (p *player) step(n int, s step) {
	p.t.Helper()
	r := s.Request
	var body []byte
	switch {
	case r.JSON != nil:
		body = []byte(p.fill(string(r.JSON)))
	case r.Text != nil:
		body = []byte(p.fill(*r.Text))
	case r.Base64 != nil:
		body, _ = base64.StdEncoding.DecodeString(*r.Base64)
	}
	q := url.Values{}
	for _, kv := range r.Query {
		q.Add(kv[0], p.fill(kv[1]))
	}
	target := p.to.url + p.fill(r.Path)
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(p.t.Context(), r.Method, target, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if r.JSON != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range r.Headers {
		req.Header.Set(k, p.fill(v))
	}
	switch r.Token {
	case "":
		req.Header.Set("Authorization", "Bearer "+p.to.token)
	case "wrong":
		req.Header.Set("Authorization", "Bearer e2b_"+strings.Repeat("0", 40))
	case "none":
	default:
		req.Header.Set("Authorization", "Bearer "+p.fill(r.Token))
	}
	resp, err := p.to.http.Do(req)
	if err != nil {
		p.t.Fatalf("step %d, %s %s: %v", n, r.Method, r.Path, err)
	}
	defer resp.Body.Close()
	fail := func(format string, args ...any) {
		p.t.Helper()
		p.t.Errorf("step %d, %s %s: %s", n, r.Method, p.fill(r.Path), fmt.Sprintf(format, args...))
	}
	if s.SSE != nil && resp.StatusCode == s.Status {
		p.events(s, resp.Body, fail)
	} else {
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != s.Status {
			fail("%d, not %d (%v): %.500s", resp.StatusCode, s.Status, err, b)
			p.t.FailNow() // the next steps build on it
		}
		p.body(s, b, fail)
	}
	for k, m := range s.Headers {
		if why := p.match(m, resp.Header.Get(k)); why != "" {
			fail("header %s%s", k, why)
		}
	}
}

func (p *player) body(s step, b []byte, fail func(string, ...any)) {
	var got any
	if s.JSON != nil || s.Save != nil {
		if err := json.Unmarshal(b, &got); err != nil {
			fail("not JSON: %.300s", b)
		}
	}
	if s.JSON != nil {
		if why := p.match(s.JSON, got); why != "" {
			fail("%s; the answer: %.800s", why, b)
		}
	}
	if s.Text != nil {
		if why := p.match(*s.Text, string(b)); why != "" {
			fail("the body%s", why)
		}
	}
	if s.Base64 != nil && base64.StdEncoding.EncodeToString(b) != *s.Base64 {
		fail("the body is %q", b)
	}
	if s.Empty && len(b) > 0 {
		fail("the body is not empty: %q", b)
	}
	for name, path := range s.Save {
		v := got
		for part := range strings.SplitSeq(path, ".") {
			m, _ := v.(map[string]any)
			v = m[part]
		}
		text, ok := v.(string)
		if !ok {
			fail("there is no %s to save", path)
		}
		p.vars[name] = text
	}
}

// events reads a stream and compares what it adds up to.
func (p *player) events(s step, body io.Reader, fail func(string, ...any)) {
	text, raw := map[string]string{}, map[string]string{}
	var first, name, data, last string
	var end any
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !isASCII(line) {
			fail("a line of the stream is not ASCII: %q", line)
		}
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && name != "":
			first, last = firstOf(first, name), name
			var got struct {
				Chunk, Stream string
				Data          []byte
			}
			if data != "" {
				if err := json.Unmarshal([]byte(data), &end); err != nil {
					fail("event %s is not JSON: %s", name, data)
				}
				json.Unmarshal([]byte(data), &got)
			}
			text[name] += got.Chunk
			if name == "chunk" {
				raw[got.Stream] += string(got.Data)
			}
			if name == s.SSE.Stop {
				return
			}
			name, data = "", ""
		}
	}
	for k, want := range s.SSE.Text {
		if text[k] != want {
			fail("%s is %q, not %q", k, text[k], want)
		}
	}
	for k, want := range s.SSE.Bytes {
		if raw[k] != want {
			fail("%s is %q, not %q", k, raw[k], want)
		}
	}
	if s.SSE.First != "" && first != s.SSE.First {
		fail("the first event is %s", first)
	}
	if s.SSE.Last != nil {
		if last != s.SSE.Last[0] {
			fail("the last event is %q: %v", last, end)
		} else if why := p.match(s.SSE.Last[1], end); why != "" {
			fail("the last event%s: %v", why, end)
		}
	}
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 126 }) < 0
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

type absent struct{}

// match compares got with a matcher; "" if it fits, else what does not.
func (p *player) match(want, got any) string {
	no := func(kind string) string { return fmt.Sprintf(": %v is not %s", got, kind) }
	switch w := want.(type) {
	case string:
		w = p.fill(w)
		if !strings.HasPrefix(w, "$") {
			if got != w {
				return no(fmt.Sprintf("%q", w))
			}
			return ""
		}
		return matchWord(w, got, no)
	case map[string]any:
		if inner, ok := w["$has"]; ok {
			list, _ := got.([]any)
			for _, item := range list {
				if p.match(inner, item) == "" {
					return ""
				}
			}
			return no(fmt.Sprintf("a list with %v", inner))
		}
		g, ok := got.(map[string]any)
		if !ok {
			return no("an object")
		}
		for k, m := range w {
			v, there := g[k]
			if !there {
				v = absent{}
			}
			if why := p.match(m, v); why != "" {
				return "." + k + why
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return no(fmt.Sprintf("a list of %d", len(w)))
		}
		for i := range w {
			if why := p.match(w[i], g[i]); why != "" {
				return fmt.Sprintf("[%d]%s", i, why)
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return no(fmt.Sprint(want))
	}
	return ""
}

func matchWord(w string, got any, no func(string) string) string {
	text, isText := got.(string)
	number, isNumber := got.(float64)
	ok := false
	switch w {
	case "$any":
		ok = got != absent{}
	case "$absent":
		ok = got == absent{}
	case "$string":
		ok = isText
	case "$number":
		ok = isNumber
	case "$int":
		ok = isNumber && number == float64(int64(number))
	case "$bool":
		_, ok = got.(bool)
	case "$list":
		_, ok = got.([]any)
	case "$id":
		ok = isText && api.ValidID(text)
	case "$time":
		at, err := time.Parse(time.RFC3339Nano, text)
		ok = isText && err == nil && strings.HasSuffix(text, "Z") && !at.IsZero()
	default:
		if len(w) < 3 || w[1] != '/' || w[len(w)-1] != '/' {
			return no("anything: the matcher " + w + " is not known")
		}
		ok = isText && regexp.MustCompile(w[2:len(w)-1]).MatchString(text)
	}
	if !ok {
		return no(w)
	}
	return ""
}
