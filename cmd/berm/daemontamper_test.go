package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// TestDaemonTamper: a daemon whose log was changed while it was down does not
// start, says what to do, and that works.
func TestDaemonTamper(t *testing.T) {
	s := serve(t)
	for range 10 {
		s.must(201, "POST", "/v1/tokens", api.TokenRequest{Role: api.RoleAgent, Label: "before"}, nil)
	}
	var head api.Head
	s.must(200, "GET", "/v1/audit/head", nil, &head)
	s.kill9() // after a kill it starts, with the log as it was
	s.start()
	var v api.Verification
	s.must(200, "POST", "/v1/audit/verify", head, &v)
	if !v.OK {
		t.Fatalf("%+v", v)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(s.state, "daemon")
	name := filepath.Join(own, "audit", "000001.log")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(data, []byte(`"label":"before"`), []byte(`"label":"beforf"`), 1)
	if bytes.Equal(data, changed) {
		t.Fatal("nothing to change")
	}
	if err := os.WriteFile(name, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func() string {
		t.Helper()
		out, err := exec.Command(s.bin, "serve", "--state", s.state, "--listen", "127.0.0.1:0").CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(own+"/audit-break")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	out := refused()
	if after, err := os.ReadFile(name); err != nil || !bytes.Equal(after, changed) {
		t.Errorf("the log was touched: %v", err)
	}
	if !strings.Contains(out, name) {
		t.Errorf("the file is not named:\n%s", out)
	}
	if err := os.Rename(filepath.Join(own, "audit"), filepath.Join(s.state, "aside")); err != nil {
		t.Fatal(err)
	}
	refused() // a log that is gone is noticed too
	_, number, _ := strings.Cut(out, `write "`)
	number, _, _ = strings.Cut(number, " ")
	if err := os.WriteFile(filepath.Join(own, "audit-break"), []byte(number+" a test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	var list api.EventList
	s.must(200, "GET", "/v1/events", nil, &list)
	if len(list.Events) == 0 || list.Events[0].Type != api.EventAuditBroken || !bytes.Contains(list.Events[0].Data, []byte("a test")) {
		t.Errorf("%+v", list.Events)
	}
}
