package main

import (
	"crypto/sha256"
	"hash"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// numbered reads as so many bytes, no two pages alike, and adds up what was read.
type numbered struct {
	at, left int64
	sum      hash.Hash
}

func (n *numbered) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), n.left, 4096)]
	copy(p[copy(p, strconv.FormatInt(n.at, 16)):], strings.Repeat("berm", 1024))
	n.sum.Write(p)
	n.at, n.left = n.at+int64(len(p)), n.left-int64(len(p))
	return len(p), nil
}

// TestDaemonBigFile: a file goes in and out whole, and the daemon holds next to
// nothing of it at any moment.
func TestDaemonBigFile(t *testing.T) {
	s := serve(t)
	size := int64(256 << 20)
	if os.Getenv("BERM_PROOF") != "" {
		size = 2 << 30
	}
	id := s.create(api.CreateRequest{Limits: api.Limits{DiskBytes: size + 64<<20, MemoryBytes: 512 << 20, TimeoutSeconds: 600}})
	s.exec(id, "true")
	before := s.memory("VmHWM")
	send := func(method string, body io.Reader) *http.Response {
		req, err := http.NewRequest(method, s.url+"/v1/sandboxes/"+id+"/fs?path=/workspace/big", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		resp, err := (&http.Client{Timeout: 10 * time.Minute}).Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %v %+v", method, err, resp)
		}
		return resp
	}
	in := &numbered{left: size, sum: sha256.New()}
	send("PUT", in).Body.Close()
	resp := send("GET", nil)
	defer resp.Body.Close()
	out := sha256.New()
	if n, err := io.Copy(out, resp.Body); n != size || err != nil || string(out.Sum(nil)) != string(in.sum.Sum(nil)) {
		t.Errorf("%d of %d bytes came back, or other ones: %v", n, size, err)
	}
	if more := s.memory("VmHWM") - before; before == 0 || more > 32<<20 {
		t.Errorf("the daemon's memory peaked %d MiB above the %d MiB before", more>>20, before>>20)
	}
}
