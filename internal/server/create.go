package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
)

// decodeCreate reads the request for a sandbox. It is strict about names and
// lenient about what clients of untyped languages do to values: null is as good
// as absent, a whole number may be written 60.0, and a tag may be a number or a
// boolean.
func decodeCreate(b []byte) (req api.CreateRequest, err error) {
	fields, err := object(b)
	if err != nil {
		return req, err
	}
	for name, v := range fields {
		if !slices.Contains(createFields, name) {
			return req, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("request body: unknown field %q", clip(name)), Hint: namesAre(createFields)}
		}
		switch {
		case string(v) == "null":
			delete(fields, name)
		case name == "tags" || name == "metadata":
			fields[name], err = texts(name, v)
		case name == "limits":
			fields[name], err = wholes(name, v)
		}
		if err != nil {
			return req, err
		}
	}
	whole, err := json.Marshal(fields)
	if err != nil {
		return req, &api.Error{Code: api.CodeBadRequest, Message: "request body: " + err.Error()}
	}
	return req, decodeBytes(whole, &req)
}

// createFields are the names that a create may have, as they are written.
var createFields = jsonNames(reflect.TypeFor[api.CreateRequest]())

func jsonNames(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// object reads one JSON object, and refuses a second field of one name: the
// reader before us may have taken the other one.
func object(b []byte) (map[string]json.RawMessage, error) {
	bad := func(why string) error {
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: " + why}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, bad("a JSON object is expected")
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad(err.Error())
		}
		name, _ := t.(string)
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, bad(err.Error())
		}
		if _, twice := fields[name]; twice {
			return nil, bad(fmt.Sprintf("the field %q is there twice", clip(name)))
		}
		fields[name] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, bad(err.Error())
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, bad("something follows the object")
	}
	return fields, nil
}

// texts makes every value of an object a string; one that is null is left out.
func texts(name string, v json.RawMessage) (json.RawMessage, error) {
	fields, err := object(v)
	if err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "request body: " + name + " is an object of strings"}
	}
	for k, v := range fields {
		switch v[0] {
		case '"':
		case 'n':
			delete(fields, k)
		case '{', '[':
			return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("request body: %s: the value of %q is not text", name, clip(k))}
		default: // a number or a boolean, as it was written
			fields[k] = json.RawMessage(strconv.Quote(string(v)))
		}
	}
	return json.Marshal(fields)
}

// wholes writes whole numbers without a point.
func wholes(name string, v json.RawMessage) (json.RawMessage, error) {
	fields, err := object(v)
	if err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "request body: " + name + " is an object of numbers"}
	}
	for k, v := range fields {
		if string(v) == "null" {
			delete(fields, k)
			continue
		}
		if f, err := strconv.ParseFloat(string(v), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			fields[k] = strconv.AppendInt(nil, int64(f), 10)
		}
	}
	return json.Marshal(fields)
}
