package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestDecodeCreate(t *testing.T) {
	for body, want := range map[string]api.CreateRequest{
		`{}`: {},
		// As PandaStack's clients send it.
		`{"template":"code-interpreter","ttl_seconds":120,"metadata":{"run_id":"r1","session":"s1"}}`:              {Template: "code-interpreter", TTLSeconds: 120, Metadata: map[string]string{"run_id": "r1", "session": "s1"}},
		`{"template":"base","ttl_seconds":60.0,"persistent":false,"from_snapshot":null,"volumes":null,"cpu":null}`: {Template: "base", TTLSeconds: 60},
		`{"metadata":{"n":3,"f":1.5,"yes":true,"none":null,"t":"x"}}`:                                              {Metadata: map[string]string{"n": "3", "f": "1.5", "yes": "true", "t": "x"}},
		`{"limits":{"memory_bytes":5.36870912e8,"pids":64.0,"cpus":0.5,"disk_bytes":null}}`:                        {Limits: api.Limits{MemoryBytes: 512 << 20, Pids: 64, CPUs: 0.5}},
		`{"tags":null,"egress":null}`: {},
	} {
		got, err := decodeCreate([]byte(body))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v", body, got, err)
		}
	}
	for _, body := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{} {}`, `{}}`, `{"template":1}`, `{"nope":null}`, `{"Template":"x"}`, `{"Bound":true}`, `{"bound":true}`,
		`{"template":"a","template":"b"}`, `{"metadata":{"a":{}}}`, `{"metadata":{"a":[1]}}`, `{"metadata":[]}`, `{"metadata":{"a":1,"a":2}}`,
		`{"limits":{"pids":1.5}}`, `{"limits":{"pids":1e400}}`, `{"limits":{"memory":1}}`, `{"limits":[]}`, `{"persistent":"no"}`, `{"ttl_seconds":"60"}`,
		strings.Repeat(`{"egress":[`, 20000),
	} {
		if got, err := decodeCreate([]byte(body)); err == nil || public(err).Code != api.CodeBadRequest {
			t.Errorf("%.60s: %+v %v", body, got, err)
		}
	}
}

func FuzzDecodeCreate(f *testing.F) {
	for _, s := range []string{`{}`, `{"metadata":{"a":1e5,"b":null}}`, `{"limits":{"pids":6.4e1}}`, `{"egress":[{"allow":"x"}],"volumes":[]}`, `{"tags":{"\u0000":"\ud800"}}`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := decodeCreate(b)
		if err != nil {
			if public(err).Code != api.CodeBadRequest {
				t.Errorf("%v", err)
			}
			return
		}
		// What was understood once is understood the same again.
		again, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		req2, err := decodeCreate(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if third, _ := json.Marshal(req2); string(third) != string(again) {
			t.Errorf("%s became %s", again, third)
		}
	})
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"/v1/sandboxes", "/v1/sandboxes/%2e%2e/x", "/a%2fb", "//", "/%zz", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		_, parts, err := split(path)
		if err != nil {
			return
		}
		for _, p := range parts {
			if p == "." || p == ".." || strings.ContainsRune(p, 0) {
				t.Errorf("%q has the part %q", path, p)
			}
		}
	})
}
