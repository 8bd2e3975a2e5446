package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bermhq/berm/api"
)

// A document is the API's own description of itself.
type document struct {
	t    *testing.T
	root map[string]any
	ops  map[string]operation
}

type operation struct {
	id, method, path string
	spec             map[string]any
	params           []map[string]any
}

func newDocument(t *testing.T) *document {
	d := &document{t: t, ops: map[string]operation{}}
	if err := yaml.Unmarshal(api.OpenAPI, &d.root); err != nil {
		t.Fatal(err)
	}
	for path, item := range at(d.root, "paths").(map[string]any) {
		for method, spec := range item.(map[string]any) {
			op := operation{id: at(spec, "operationId").(string), method: strings.ToUpper(method), path: path, spec: spec.(map[string]any)}
			list, _ := at(spec, "parameters").([]any)
			for _, p := range list {
				op.params = append(op.params, d.deref(p))
			}
			d.ops[op.id] = op
		}
	}
	return d
}

// at walks down a document.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func (d *document) deref(v any) map[string]any {
	m, _ := v.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		m, _ = at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(map[string]any)
	}
	return m
}

// holds says what of an answer the document does not promise; "" is nothing.
func (d *document) holds(op operation, status int, contentType, body string) string {
	responses := d.deref(op.spec["responses"])
	r, ok := responses[strconv.Itoa(status)]
	if !ok {
		if status < 400 {
			return fmt.Sprintf("the document knows no %d", status)
		}
		r = responses["default"]
	}
	content, _ := d.deref(r)["content"].(map[string]any)
	if content == nil {
		if body != "" {
			return fmt.Sprintf("%d has no body in the document, and one here", status)
		}
		return ""
	}
	if content["*/*"] != nil {
		return ""
	}
	kind, _, _ := strings.Cut(contentType, ";")
	media, ok := content[kind].(map[string]any)
	if !ok {
		return fmt.Sprintf("%d of type %q is not in the document", status, contentType)
	}
	if kind != "application/json" {
		return ""
	}
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return "no JSON: " + err.Error()
	}
	return d.fits(media["schema"], v, "")
}

// fits says where a value is not of a schema.
func (d *document) fits(schema, v any, where string) string {
	s := d.deref(schema)
	if s == nil {
		return ""
	}
	all, _ := s["allOf"].([]any)
	for _, part := range all {
		if why := d.fits(part, v, where); why != "" {
			return why
		}
	}
	if c, ok := s["const"]; ok && c != v {
		return fmt.Sprintf("%s is %v, not %v", where, v, c)
	}
	if e, ok := s["enum"].([]any); ok && !slices.Contains(e, v) {
		return fmt.Sprintf("%s: %v is none of %v", where, v, e)
	}
	types := typesOf(s)
	if len(types) == 0 {
		return ""
	}
	kind := ""
	switch v := v.(type) {
	case nil:
		kind = "null"
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		kind = "number"
		if v == math.Trunc(v) && slices.Contains(types, "integer") {
			kind = "integer"
		}
	case []any:
		kind = "array"
		for i, x := range v {
			if why := d.fits(s["items"], x, fmt.Sprintf("%s[%d]", where, i)); why != "" {
				return why
			}
		}
	case map[string]any:
		kind = "object"
		required, _ := s["required"].([]any)
		for _, f := range required {
			if _, ok := v[f.(string)]; !ok {
				return fmt.Sprintf("%s has no %v", where, f)
			}
		}
		for f, x := range v {
			if p := at(s, "properties", f); p != nil {
				if why := d.fits(p, x, where+"."+f); why != "" {
					return why
				}
			} else if extra, ok := s["additionalProperties"].(map[string]any); ok {
				if why := d.fits(extra, x, where+"."+f); why != "" {
					return why
				}
			}
		}
	}
	if !slices.Contains(types, kind) {
		return fmt.Sprintf("%s is %s, not %v", where, kind, types)
	}
	return ""
}

func typesOf(s map[string]any) (types []string) {
	switch t := s["type"].(type) {
	case string:
		types = []string{t}
	case []any:
		for _, x := range t {
			types = append(types, x.(string))
		}
	}
	return types
}

// A maker makes values of schemas, and now and then values that are not.
type maker struct {
	d   *document
	r   *rand.Rand
	bad float64 // how often a value is not of its schema
}

var odd = []any{nil, "", "x", 0, 1, -1, 1.5, 1e300, -1e300, 1 << 60, true, false, []any{}, map[string]any{}, "\x00", "ä\u2028\U0001F600", "../../etc/passwd", strings.Repeat("x", 5000), []any{nil}, map[string]any{"": nil}}

func (m *maker) value(schema any, depth int) any {
	if m.r.Float64() < m.bad {
		return odd[m.r.IntN(len(odd))]
	}
	s := m.d.deref(schema)
	if e, ok := s["enum"].([]any); ok {
		return e[m.r.IntN(len(e))]
	}
	types := typesOf(s)
	if len(types) == 0 || depth > 6 {
		return odd[m.r.IntN(len(odd))]
	}
	switch types[m.r.IntN(len(types))] {
	case "null":
		return nil
	case "boolean":
		return m.r.IntN(2) == 0
	case "integer":
		return []any{0, 1, 2, 9, 80, 1000, 65535, 1 << 31, 1 << 53, -1}[m.r.IntN(10)]
	case "number":
		return []any{0, 0.001, 0.5, 1, 30, 3600, 1e9, 1e18, -1}[m.r.IntN(9)]
	case "array":
		out := []any{}
		for range m.r.IntN(3) {
			out = append(out, m.value(s["items"], depth+1))
		}
		return out
	case "object":
		out := map[string]any{}
		props, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for f, p := range props {
			if slices.Contains(required, any(f)) || m.r.IntN(4) == 0 {
				out[f] = m.value(p, depth+1)
			}
		}
		if extra, ok := s["additionalProperties"].(map[string]any); ok && m.r.IntN(2) == 0 {
			out[m.text(nil)] = m.value(extra, depth+1)
		}
		return out
	}
	return m.text(s)
}

// text is a string, mostly one that means something to some route.
func (m *maker) text(s map[string]any) string {
	words := []string{"", "a", "run_id", "host", "echo", "true", "cat", "/workspace", "/workspace/f", "f", "..", "/", "/tmp/x/y", "TERM", "9", "agent", "root", "mem", "gvisor", "ä", "\x00", "a b", "%", "*", "[", strings.Repeat("long", 100)}
	w := words[m.r.IntN(len(words))]
	if p, ok := s["pattern"].(string); ok && m.r.Float64() >= m.bad && !regexp.MustCompile(p).MatchString(w) {
		return "0"
	}
	return w
}

// TestDocumentHolds asks every route with what the document allows, and with
// what it does not: no answer is a host failure, and every answer is of the
// shape that the document promises. BERM_ROUNDS asks for more than CI does.
func TestDocumentHolds(t *testing.T) {
	w := newWorld(t)
	d := newDocument(t)
	rounds, _ := strconv.Atoi(os.Getenv("BERM_ROUNDS"))
	if rounds == 0 {
		rounds = 12
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &maker{d: d, r: rand.New(rand.NewPCG(seed, 0)), bad: 0.05}
	id := w.create(admin, `{}`)
	ids := make([]string, 0, len(d.ops))
	for name := range d.ops {
		ids = append(ids, name)
	}
	slices.Sort(ids)
	told := map[string]bool{}
	for _, name := range ids {
		op := d.ops[name]
		for round := range rounds {
			path, query, header := op.path, url.Values{}, []string{}
			for _, p := range op.params {
				name := p["name"].(string)
				v := fmt.Sprint(m.value(p["schema"], 0))
				switch p["in"] {
				case "path":
					if name == "id" && m.r.IntN(5) > 0 {
						v = id
					}
					if v == "" {
						v = "none"
					}
					path = strings.Replace(path, "{"+name+"}", url.PathEscape(v), 1)
				case "query":
					if name != "access_token" && name != "follow" && name != "wait" && (p["required"] == true || m.r.IntN(3) == 0) {
						query.Set(name, v)
					}
				case "header":
					if m.r.IntN(3) == 0 && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) {
						header = append(header, name, v)
					}
				}
			}
			body := ""
			content, _ := at(op.spec, "requestBody", "content").(map[string]any)
			if media, ok := content["application/json"].(map[string]any); ok && round > 0 {
				v := m.value(media["schema"], 0)
				if o, ok := v.(map[string]any); ok {
					calm(name, o)
				}
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				body = string(b)
			} else if content != nil && round > 0 {
				body = m.text(nil)
			}
			if q := query.Encode(); q != "" {
				path += "?" + q
			}
			g := w.ask(admin, op.method, path, body, header...)
			if g.status == 500 {
				t.Errorf("%s %s %s\n%.300s\nis a host failure: %s", name, op.method, path, body, g.body)
			}
			if g.header.Get("Content-Type") == "text/event-stream; charset=utf-8" {
				continue
			}
			if why := d.holds(op, g.status, g.header.Get("Content-Type"), g.body); why != "" && !told[name+why] {
				told[name+why] = true
				t.Errorf("%s %s %s\n%.300s\nanswers %d: %s: %.300s", name, op.method, path, body, g.status, why, g.body)
			}
			switch {
			case name == "sandbox.create" && g.status == 201:
				w.ask(admin, "DELETE", "/v1/sandboxes/"+idOf(g), "")
			case g.status < 300 && (name == "sandbox.delete" || name == "sandbox.pause" || name == "sandbox.lifecycle.set"):
				w.ask(admin, "DELETE", "/v1/sandboxes/"+id, "")
				id = w.create(admin, `{}`)
			case w.ask(admin, "GET", "/v1/sandboxes/"+id+"/lifecycle", "").status != 200 && w.ask(admin, "GET", "/v1/sandboxes/"+id, "").status != 200:
				id = w.create(admin, `{}`)
			}
		}
	}
}

// calm keeps a request from taking long.
func calm(name string, o map[string]any) {
	if strings.HasPrefix(name, "exec") {
		if _, ok := o["timeout_seconds"].(float64); ok || o["timeout_seconds"] == nil {
			o["timeout_seconds"] = 0.2
		}
		delete(o, "stdin")
	}
}
