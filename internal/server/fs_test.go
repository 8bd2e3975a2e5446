package server_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

func TestFiles(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	at := "/v1/sandboxes/" + id
	q := func(p string) string { return "?path=" + url.QueryEscape(p) }
	expect := func(method, path, body string, status int, want string) {
		t.Helper()
		got, out := e.do(method, at+path, body)
		if got != status || !strings.Contains(out, want) {
			t.Errorf("%s %s: %d %.300s, want %d %s", method, path, got, out, status, want)
		}
	}
	all := "bytes \x00\xff of any kind"
	expect("PUT", "/fs"+q("/workspace/new/a b+c.txt"), all, 200, fmt.Sprintf(`{"path":"/workspace/new/a b+c.txt","bytes":%d}`, len(all)))
	if status, out := e.do("GET", at+"/fs?path=/workspace/new/a+b%2Bc.txt", ""); status != 200 || out != all {
		t.Errorf("%d %q", status, out)
	}
	expect("PUT", "/fs"+q("/workspace/new/a b+c.txt"), "", 200, `"bytes":0`) // replaced, by nothing
	if status, out := e.do("GET", at+"/fs"+q("/workspace/new/a b+c.txt"), ""); status != 200 || out != "" {
		t.Errorf("%d %q", status, out)
	}
	expect("PUT", "/fs"+q("/run/creds.json"), "{}", 200, "")
	expect("GET", "/fs/stat"+q("/run/creds.json"), "", 200, `"perm":384`) // 0600
	expect("PUT", "/fs"+q("/run/open")+"&mode=0644", "{}", 200, "")
	expect("GET", "/fs/stat"+q("/run/open"), "", 200, `"perm":420`)
	expect("GET", "/fs/stat"+q("/workspace/new/a b+c.txt"), "", 200, `"name":"a b+c.txt","path":"/workspace/new/a b+c.txt","is_dir":false,"size":0,"mode":"f"`)
	expect("GET", "/fs/stat"+q("/workspace/new"), "", 200, `"is_dir":true`)

	expect("POST", "/fs/dir"+q("/workspace/new/d/e"), "", 204, "")
	expect("POST", "/fs/dir"+q("/workspace/new/d/e"), "", 204, "")
	status, out := e.do("GET", at+"/fs/dir"+q("/workspace/new"), "")
	var l api.DirList
	if err := json.Unmarshal([]byte(out), &l); err != nil || status != 200 || l.Path != "/workspace/new" || len(l.Entries) != 2 ||
		l.Entries[1].Name != "d" || !l.Entries[1].IsDir || l.Entries[1].Mode != "d" || l.Entries[1].Path != "/workspace/new/d" || time.Now().Unix()-l.Entries[1].MTime > 60 {
		t.Errorf("%d %s", status, out)
	}
	expect("GET", "/fs/dir"+q("/workspace/new/d/e"), "", 200, `"entries":[]`)
	expect("POST", "/fs/move", `{"from":"/workspace/new/d","to":"/workspace/moved"}`, 204, "")
	expect("GET", "/fs/stat"+q("/workspace/moved/e"), "", 200, `"is_dir":true`)
	expect("DELETE", "/fs"+q("/workspace/moved"), "", 204, "")

	for _, path := range []string{"/workspace/none", "/workspace/moved/e", "/run/open/below"} {
		for _, route := range []string{"/fs", "/fs/stat", "/fs/dir", "/fs/watch"} {
			if path == "/run/open/below" && route != "/fs/stat" {
				continue
			}
			expect("GET", route+q(path), "", 404, api.CodeFileNotFound)
		}
	}
	expect("GET", "/fs"+q("/workspace/new"), "", 400, api.CodeFileKind)
	expect("PUT", "/fs"+q("/workspace/new"), "x", 400, api.CodeFileKind)
	expect("GET", "/fs/dir"+q("/run/open"), "", 400, api.CodeFileKind)
	expect("GET", "/fs/watch"+q("/run/open"), "", 400, api.CodeFileKind)
	for _, path := range []string{"", "relative", "./x", "/a\x00b", "/" + strings.Repeat("x", 5000)} {
		for _, route := range []string{"GET /fs", "PUT /fs", "DELETE /fs", "GET /fs/stat", "GET /fs/dir", "POST /fs/dir", "GET /fs/watch", "GET /archive"} {
			method, route, _ := strings.Cut(route, " ")
			expect(method, route+q(path), "", 400, api.CodeBadRequest)
		}
	}
	for _, query := range []string{"&mode=rw", "&mode=8", "&mode=4755", "&mode=-1", "&follow=1"} {
		expect("PUT", "/fs"+q("/workspace/x")+query, "", 400, api.CodeBadRequest)
	}
	expect("POST", "/fs/move", `{"from":"a","to":"/b"}`, 400, api.CodeBadRequest)
	expect("POST", "/fs/move", `{"from":"/a","to":"/b","force":true}`, 400, api.CodeBadRequest)
	expect("DELETE", "/fs"+q("/"), "", 400, api.CodeBadRequest)
	expect("DELETE", "/fs"+q("/.."), "", 400, api.CodeBadRequest)

	resp := e.open(t.Context(), "HEAD", at+"/fs"+q("/run/creds.json"), "")
	if resp.StatusCode != 200 || resp.ContentLength != 2 {
		t.Errorf("HEAD: %d %d", resp.StatusCode, resp.ContentLength)
	}
}

// A body that does not arrive whole leaves nothing behind.
func TestWriteBroken(t *testing.T) {
	e := newEdgeWith(t, server.Options{ReadTimeout: 200 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	for name, head := range map[string]string{"short": "Content-Length: 1000000", "chunked": "Transfer-Encoding: chunked", "silent": "Content-Length: 1000000"} {
		nc, err := e.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(5 * time.Second))
		go func() {
			fmt.Fprintf(nc, "PUT /v1/sandboxes/%s/fs?path=/workspace/%s HTTP/1.1\r\nHost: berm\r\n%s\r\n\r\n", id, name, head)
			if name == "chunked" {
				fmt.Fprint(nc, "5\r\nhello\r\n")
			} else {
				fmt.Fprint(nc, strings.Repeat("x", 5000))
			}
			if name != "silent" {
				time.Sleep(50 * time.Millisecond)
				nc.Close()
			}
		}()
		b, _ := io.ReadAll(nc)
		if strings.HasPrefix(string(b), "HTTP/1.1 200") {
			t.Errorf("%s: %s", name, b)
		}
		nc.Close()
	}
	until(t, "nothing is left", func() bool {
		status, out := e.do("GET", "/v1/sandboxes/"+id+"/fs/dir?path=/workspace", "")
		return status == 200 && strings.Contains(out, `"entries":[]`)
	})
}

// A download whose source breaks off is cut, not ended.
func TestReadBroken(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	at := "/v1/sandboxes/" + id
	if status, out := e.do("PUT", at+"/fs?path=/workspace/big", strings.Repeat("0123456789abcdef", 1<<18)); status != 200 {
		t.Fatalf("%d %s", status, out)
	}
	for _, route := range []string{"/fs?path=/workspace/big", "/archive?path=/workspace"} {
		resp := e.open(t.Context(), "GET", at+route, "")
		io.ReadFull(resp.Body, make([]byte, 1000))
		if route != "/fs?path=/workspace/big" {
			e.do("DELETE", at, "")
		} else {
			resp.Body.Close() // the client leaves; the sandbox goes on
			continue
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: a part was given for the whole", route)
		}
	}
}

// endless is more than a sandbox may hold.
type endless struct{ left int64 }

func (r *endless) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), r.left)
	r.left -= n
	return int(n), nil
}

func TestArchive(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	at := "/v1/sandboxes/" + id
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, n := range []string{"a/one", "a/two", "three"} {
		tw.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: int64(len(n))})
		tw.Write([]byte(n))
	}
	tw.Close()
	if status, out := e.do("PUT", at+"/archive?path=/workspace/in", b.String()); status != 204 {
		t.Fatalf("%d %s", status, out)
	}
	names := func(query string) string {
		resp := e.open(t.Context(), "GET", at+"/archive?path=/workspace/in"+query, "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-tar" {
			b, _ := io.ReadAll(resp.Body)
			t.Fatalf("%d %s", resp.StatusCode, b)
		}
		var out []string
		tr := tar.NewReader(resp.Body)
		for {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				body, _ := io.ReadAll(tr)
				if !strings.HasSuffix("./"+strings.TrimPrefix(h.Name, "./"), string(body)) {
					t.Errorf("%s holds %q", h.Name, body)
				}
				out = append(out, string(body))
			}
		}
		return strings.Join(out, " ")
	}
	if got := names(""); len(strings.Fields(got)) != 3 {
		t.Errorf("all: %s", got)
	}
	if got := names("&name=three&name=a/two"); len(strings.Fields(got)) != 2 || strings.Contains(got, "one") {
		t.Errorf("two: %s", got)
	}
	for _, query := range []string{"&name=/etc/passwd", "&name=../x", "&name=", "&what=1", strings.Repeat("&name=x", 1001)} {
		if status, out := e.do("GET", at+"/archive?path=/workspace/in"+query, ""); status != 400 {
			t.Errorf("%.40s: %d %.200s", query, status, out)
		}
	}
	if status, out := e.do("PUT", at+"/archive?path=/workspace/in", "not a tar, and long enough to be seen as none"); status != 403 {
		t.Errorf("%d %s", status, out)
	}
}

func TestWatch(t *testing.T) {
	e := newEdgeWith(t, server.Options{Heartbeat: 50 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := e.open(ctx, "GET", "/v1/sandboxes/"+id+"/fs/watch?path=/workspace", "")
	f := newFeed(t, resp)
	if ev := f.must(); ev.name != "ready" || ev.data != "{}" {
		t.Errorf("%+v", ev)
	}
	e.run(id, `{"args":["put","seen","x"]}`)
	ev := f.must()
	if c := decodeData[api.FileEvent](t, ev); ev.name != "change" || c.Path != "/workspace/seen" {
		t.Errorf("%+v", ev)
	}
	// The end of the sandbox ends it.
	if status, body := e.do("DELETE", "/v1/sandboxes/"+id, ""); status != 204 {
		t.Errorf("%d %s", status, body)
	}
	for _, ev := range f.rest() {
		if ev.name != "change" && ev.name != "error" {
			t.Errorf("%+v", ev)
		}
	}
}

// A listing of any size is bounded.
func TestHugeListing(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for n := range 10100 {
		tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("%05d%s", n, strings.Repeat("n", 200)), Mode: 0o644})
	}
	tw.Close()
	if status, out := e.do("PUT", "/v1/sandboxes/"+id+"/archive?path=/workspace/many", b.String()); status != 204 {
		t.Fatalf("%d %s", status, out)
	}
	_, out := e.do("GET", "/v1/sandboxes/"+id+"/fs/dir?path=/workspace/many", "")
	var l api.DirList
	if err := json.Unmarshal([]byte(out), &l); err != nil || !l.More || len(l.Entries) > 10000 || len(l.Entries) < 9000 {
		t.Errorf("%d entries, more %v, %v", len(l.Entries), l.More, err)
	}
}

// More than any buffer holds goes in and comes out. That it is not held is
// cmd/berm.TestDaemonBigFile.
func TestBigFile(t *testing.T) {
	if testing.Short() {
		t.Skip("moves much")
	}
	const size = 256 << 20
	e := newEdge(t)
	id := e.createWith(`{"limits":{"disk_bytes":1073741824}}`)
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", "http://berm/v1/sandboxes/"+id+"/fs?path=/workspace/big", &endless{left: size})
	resp, err := e.client().Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	resp.Body.Close()
	resp = e.open(t.Context(), "GET", "/v1/sandboxes/"+id+"/fs?path=/workspace/big", "")
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
