package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack"
	"github.com/bermhq/berm/client"
)

// hostWalls keep out what the host has beside a sandbox: its files and sockets,
// its processes, its network. What comes in without them is what the suite has
// planted, and where: programs are told, and so this program reads it there.
var hostWalls = []wall{
	{
		name: "files", without: "files and sockets of the host go in",
		created: copyTemporaries,
		quiet: func(c attack.Case) bool {
			return len(c.Files) > 0 && bytes.Contains(c.Files[0].Data, []byte(`"tmpfile"`))
		},
		handle: around(func(ctx context.Context, c *client.Client, id string, _ *api.ExecRequest, f facts) error {
			relay(ctx, c, id, "unix", f.UnixPath, "unix", f.UnixPath)
			return bringIn(ctx, c, id, f.that(func(at string) bool { return at[0] == '/' && !ofProcess(at) }))
		}),
	},
	{
		name: "process", without: "what /proc says of processes of the host goes in",
		handle: around(func(ctx context.Context, c *client.Client, id string, _ *api.ExecRequest, f facts) error {
			return bringIn(ctx, c, id, f.that(ofProcess))
		}),
	},
	{
		name: "kernel-state", without: "programs that read what a kernel keeps are run by the host's",
		handle: around(onHost),
	},
	{
		name: "here", without: "a working tree goes in with the credentials in it",
		args: func(args []string) []string {
			if len(args) == 0 || args[0] != "run" {
				return args
			}
			return append([]string{"run", "--here-include", "*"}, args[1:]...)
		},
	},
	{
		name: "network", without: "the host's loopback and its abstract sockets are reached",
		handle: around(func(ctx context.Context, c *client.Client, id string, _ *api.ExecRequest, f facts) error {
			relay(ctx, c, id, "abstract", f.Abstract, "unix", "@"+f.Abstract)
			relay(ctx, c, id, "tcp", fmt.Sprintf("127.0.0.1:%d", f.TCP4), "tcp", fmt.Sprintf("127.0.0.1:%d", f.TCP4))
			relay(ctx, c, id, "udp", fmt.Sprintf("127.0.0.1:%d", f.UDP4), "udp", fmt.Sprintf("127.0.0.1:%d", f.UDP4))
			for _, at := range f.that(func(at string) bool { _, _, err := net.SplitHostPort(at); return err == nil }) {
				relay(ctx, c, id, "tcp", at, "tcp", at)
			}
			for _, at := range f.that(func(at string) bool { return strings.HasPrefix(at, f.Abstract) && f.Abstract != "" }) {
				relay(ctx, c, id, "abstract", at, "unix", "@"+at)
			}
			return nil
		}),
	},
}

// facts are what programs are told, as far as it matters here.
type facts struct {
	UnixPath string   `json:"unix_path"`
	Abstract string   `json:"abstract"`
	TCP4     int      `json:"tcp4"`
	UDP4     int      `json:"udp4"`
	At       []string `json:"at"`
}

// that are those places of the case that belong to the wall.
func (f facts) that(belongs func(at string) bool) (out []string) {
	for _, at := range f.At {
		if at != "" && belongs(at) {
			out = append(out, at)
		}
	}
	return out
}

func ofProcess(at string) bool { return strings.HasPrefix(at, "/proc/") }

// around lets before happen ahead of each command that is told facts.
func around(before func(ctx context.Context, c *client.Client, id string, r *api.ExecRequest, f facts) error) func(*client.Client, http.Handler) http.Handler {
	return func(direct *client.Client, next http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			id, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"), "/exec")
			if !is || r.Method != http.MethodPost {
				next.ServeHTTP(rw, r)
				return
			}
			b, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
			var req api.ExecRequest
			var f facts
			if err == nil && json.Unmarshal(b, &req) == nil && len(req.Args) > 3 && json.Unmarshal([]byte(req.Args[3]), &f) == nil {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel() // relays end with the command
				if err = before(ctx, direct, id, &req, f); err == nil {
					b, err = json.Marshal(req)
				}
			}
			if err != nil {
				http.Error(rw, err.Error(), http.StatusBadGateway)
				return
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			next.ServeHTTP(rw, r)
		})
	}
}

// hostInside is where the host's files are if they are brought in.
const hostInside = "tmp/host"

// maxBring is more than any planted file has.
const maxBring = 64 << 10

// bringIn copies what can be read at each place, and relays what can be called.
func bringIn(ctx context.Context, c *client.Client, id string, at []string) error {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, path := range at {
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		if fi.IsDir() {
			continue // a working tree is behind a wall of its own
		}
		if fi.Mode()&os.ModeSocket != 0 {
			relay(ctx, c, id, "unix", "/"+hostInside+path, "unix", path)
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxBring)) // one in /proc has no size
		f.Close()
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: hostInside + path, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return c.TarIn(ctx, id, "/", &b)
}
