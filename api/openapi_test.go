package api

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type object = map[string]any

func document(t *testing.T) object {
	t.Helper()
	var doc object
	if err := yaml.Unmarshal(OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at walks down a document.
func at(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(object)
		v = m[k]
	}
	return v
}

// The document describes the routes of the table and no others, with the role
// of each.
func TestDocumentIsTheTable(t *testing.T) {
	doc := document(t)
	paths := at(doc, "paths").(object)
	left := map[string]bool{} // operations that no route accounts for
	for path, item := range paths {
		for method := range item.(object) {
			left[method+" "+path] = true
		}
	}
	names := map[string]bool{}
	for _, r := range Routes {
		if names[r.Name] {
			t.Errorf("two routes are called %s", r.Name)
		}
		names[r.Name] = true
		path := strings.Replace(r.Path, "...}", "}", 1)
		methods := []string{strings.ToLower(r.Method)}
		if r.Method == "ANY" {
			methods = []string{"get", "put", "post", "delete", "patch"}
		}
		for _, m := range methods {
			op, ok := at(paths, path, m).(object)
			if !ok {
				t.Errorf("%s: %s %s is not in the document", r.Name, m, path)
				continue
			}
			delete(left, m+" "+path)
			id := r.Name
			if r.Method == "ANY" {
				id += "." + m
			}
			missing, _ := op["x-missing"].(string)
			if op["operationId"] != id || op["x-role"] != r.Role || missing != r.Missing {
				t.Errorf("%s: the document has operationId %v, x-role %q, x-missing %q", r.Name, op["operationId"], op["x-role"], missing)
			}
			if _, open := op["security"]; open != (r.Role == "") {
				t.Errorf("%s: security and the role %q do not agree", r.Name, r.Role)
			}
			if s, _ := op["summary"].(string); s == "" {
				t.Errorf("%s has no summary", r.Name)
			}
			declared := map[string]bool{}
			params, _ := op["parameters"].([]any)
			for _, p := range params {
				if ref, ok := p.(object)["$ref"].(string); ok {
					p = at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
				}
				if at(p, "in") == "path" {
					declared[at(p, "name").(string)] = true
				}
			}
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !declared[m[1]] {
					t.Errorf("%s does not declare its parameter %s", r.Name, m[1])
				}
				delete(declared, m[1])
			}
			for name := range declared {
				t.Errorf("%s declares a path parameter %s that it does not have", r.Name, name)
			}
		}
	}
	for op := range left {
		t.Errorf("%s is in the document and not a route", op)
	}
}

func TestDocumentRefers(t *testing.T) {
	doc := document(t)
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
				if !strings.HasPrefix(ref, "#/") || at(doc, strings.Split(ref[2:], "/")...) == nil {
					t.Errorf("%s refers to nothing", ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(doc)
	streamed := []string{"LogLine", "FileEvent", "Chunk", "EgressData"} // parts of events and streams, which the format cannot describe
	for name := range at(doc, "components", "schemas").(object) {
		if !used["#/components/schemas/"+name] && !slices.Contains(streamed, name) {
			t.Errorf("nothing uses the schema %s", name)
		}
	}
}

// Each schema has the fields of the type of its name.
func TestDocumentHasOurTypes(t *testing.T) {
	types := map[string]any{
		"Chunk": Chunk{}, "CreateRequest": CreateRequest{}, "Denial": Denial{}, "DirEntry": DirEntry{}, "DirList": DirList{},
		"Doctor": Doctor{}, "EgressChange": EgressChange{}, "EgressData": EgressData{}, "EgressRule": EgressRule{}, "EgressState": EgressState{}, "EndReport": EndReport{}, "Error": Error{}, "Event": Event{}, "EventList": EventList{}, "Exec": Exec{},
		"ExecAnswer": ExecAnswer{}, "ExecList": ExecList{}, "ExecRequest": ExecRequest{}, "ExecResult": ExecResult{},
		"FileEvent": FileEvent{}, "FileInfo": FileInfo{}, "FileList": FileList{}, "FileMoved": FileMoved{}, "Head": Head{},
		"Leak": Leak{}, "LeakList": LeakList{}, "Lifecycle": Lifecycle{}, "LifecycleChange": LifecycleChange{}, "Limits": Limits{},
		"LogLine": LogLine{}, "Me": Me{}, "Metrics": Metrics{}, "MoveRequest": MoveRequest{}, "NewToken": NewToken{}, "Policy": Policy{},
		"Port": Port{}, "Report": Report{}, "Route": Route{}, "Rung": Rung{}, "Sandbox": Sandbox{}, "SignalRequest": SignalRequest{},
		"Build": Build{}, "BuildRequest": BuildRequest{}, "Template": Template{}, "TemplateConfig": TemplateConfig{}, "TemplateLayer": TemplateLayer{},
		"TemplateProgress": TemplateProgress{}, "WorkTree": WorkTree{}, "Token": Token{}, "TokenList": TokenList{}, "TokenRequest": TokenRequest{}, "Top": Top{},
		"TopRow": TopRow{}, "Truncated": Truncated{}, "Usage": Usage{}, "Verification": Verification{}, "Version": Version{},
		"Wall": Wall{}, "Written": Written{},
	}
	// Shapes of the wire that have no type of their own here.
	shapes := []string{"MyToken", "MyTokenRequest", "SandboxEventList", "MetadataChange"}
	schemas := at(document(t), "components", "schemas").(object)
	for name := range schemas {
		if _, ok := types[name]; !ok && !slices.Contains(shapes, name) {
			t.Errorf("the schema %s is not held to a type", name)
		}
	}
	for name, v := range types {
		props, _ := at(schemas, name, "properties").(object)
		want := map[string]string{}
		fields(reflect.TypeOf(v), want)
		for f, kind := range want {
			p, ok := props[f].(object)
			if !ok {
				t.Errorf("%s.%s is not in the document", name, f)
				continue
			}
			got := p["type"]
			if list, ok := got.([]any); ok {
				got = list[0]
			}
			if kind != "" && got != nil && got != kind {
				t.Errorf("%s.%s is %v in the document, and %s", name, f, got, kind)
			}
		}
		for f := range props {
			if _, ok := want[f]; !ok {
				t.Errorf("%s.%s is in the document only", name, f)
			}
		}
		required, _ := at(schemas, name, "required").([]any)
		for _, f := range required {
			if _, ok := want[f.(string)]; !ok {
				t.Errorf("%s requires %v, which it does not have", name, f)
			}
		}
	}
}

// fields collects the names of a struct's fields as JSON, with the kind of each.
func fields(t reflect.Type, out map[string]string) {
	for f := range t.Fields() {
		if f.Anonymous {
			fields(f.Type, out)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		ft := f.Type
		for ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		kind := ""
		switch ft.Kind() {
		case reflect.String:
			kind = "string"
		case reflect.Bool:
			kind = "boolean"
		case reflect.Float64:
			kind = "number"
		case reflect.Map:
			kind = "object"
		case reflect.Slice:
			if ft.Elem().Kind() != reflect.Uint8 {
				kind = "array"
			}
		case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			kind = "integer"
		}
		out[name] = kind
	}
}
