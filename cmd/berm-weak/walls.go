package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/daemon"
)

// A wall is one that can be taken out, by its name in attack.Walls: what is done
// to requests on their way.
type wall struct {
	name    string
	without string

	daemon  func(*daemon.ServeOptions)                                   // before a daemon starts
	options func(*daemon.Options)                                        // before the two processes start
	create  func(*api.CreateRequest)                                     // before a sandbox is made
	created func(ctx context.Context, c *client.Client, id string) error // after it was
	exec    func(*api.ExecRequest)                                       // before a command starts
	handle  func(direct *client.Client, next http.Handler) http.Handler  // around every request
	args    func([]string) []string                                      // of the command line
	extract client.Extractor                                             // what brings files out
	forget  bool                                                         // nothing is ended or deleted
	born    bool                                                         // by internal/jail/weak.go, where processes are born

	template string                 // that sandboxes start from; the tests make it
	quiet    func(attack.Case) bool // cases of other walls that see this one missing too, with reason
	quickest string                 // of its own; "": the one with the shortest deadline

	// Of a daemon, by a front before it:
	front func(f *front, r *http.Request)                    // changes a request
	wrong func(rw http.ResponseWriter, r *http.Request) bool // answers it instead
	back  func(*http.Response) error                         // changes an answer
	ahead string                                             // a shell script beside it, with its state directory as $0
}

// out says whether anything is taken out.
func (w wall) out() bool {
	return w.options != nil || w.create != nil || w.created != nil || w.exec != nil || w.handle != nil || w.args != nil || w.extract != nil || w.template != "" || w.forget || w.born || w.front != nil || w.daemon != nil
}

// red are the cases that must see that the wall is missing, the quicker ones first.
func (w wall) red() (out []string) {
	all, err := attack.Cases()
	if err != nil {
		panic(err)
	}
	slices.SortStableFunc(all, func(a, b attack.Case) int {
		if a.ID == w.quickest || b.ID == w.quickest {
			return map[bool]int{true: -1, false: 1}[a.ID == w.quickest]
		}
		return cmp.Compare(a.Limits.TimeoutSeconds, b.Limits.TimeoutSeconds)
	})
	for _, c := range all {
		if c.Wall == w.name && c.Stays == "" && c.Bare == "" && c.Waits == "" {
			out = append(out, c.ID)
		}
	}
	return out
}

// walls are all that can be taken out, in the order in which they are tried.
var walls = slices.Concat(requestWalls, hostWalls, jailWalls, fileWalls, apiWalls, exhaustionWalls)

// requestWalls are taken out by what is asked of a worker that is whole. Without
// a cap, programs still end by bounds of their own, and other caps hold.
var requestWalls = []wall{
	{
		name: "environment", without: "the caller's environment goes in",
		exec: func(r *api.ExecRequest) {
			if r.Env == nil {
				r.Env = map[string]string{}
			}
			for _, kv := range os.Environ() {
				if k, v, _ := strings.Cut(kv, "="); k != "PATH" && k != "HOME" {
					r.Env[k] = v
				}
			}
		},
	},
	{
		name: "memory", without: "no memory cap",
		create: func(r *api.CreateRequest) { r.Limits.MemoryBytes = 2 << 30 },
	},
	{
		name: "tasks", without: "no task cap",
		create: func(r *api.CreateRequest) { r.Limits.Pids = 2000 },
	},
	{
		name: "disk", without: "no disk cap",
		create: func(r *api.CreateRequest) { r.Limits.DiskBytes = 2 << 30 },
	},
	{
		name: "output", without: "no output cap",
		create: func(r *api.CreateRequest) { r.Limits.OutputBytes = 1 << 30 },
	},
	{
		name: "time", without: "no deadline",
		create: func(r *api.CreateRequest) { r.Limits.TimeoutSeconds = 60 },
	},
	kernelWall,
	guestUser,
	openWire,
	{
		name: "teardown", without: "nothing is ended when a session is closed",
		forget: true,
	},
}

// narrow has all its walls, and they are too narrow: programs that do normal work
// must be told to be hindered.
var narrow = wall{
	name: "too-narrow", without: "room for programs that do normal work",
	create: func(r *api.CreateRequest) {
		r.Limits.MemoryBytes, r.Limits.Pids, r.Limits.DiskBytes, r.Limits.OutputBytes = 192<<20, 16, 64<<20, 1<<20
		r.Egress, r.Env = nil, nil
	},
}

func find(name string) (wall, bool) {
	if name == narrow.name {
		return narrow, true
	}
	i := slices.IndexFunc(walls, func(w wall) bool { return w.name == name })
	if i < 0 {
		return wall{}, false
	}
	return walls[i], true
}

func names() (out []string) {
	for _, w := range walls {
		out = append(out, w.name)
	}
	return out
}

// copyTemporaries puts canaries of the host where a mount would put them. It
// takes nothing that the suite has not planted.
func copyTemporaries(ctx context.Context, c *client.Client, id string) error {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		found, _ := filepath.Glob(dir + "/berm-canary-*")
		for _, path := range found {
			fi, err := os.Lstat(path)
			if err != nil || !fi.Mode().IsRegular() || fi.Size() > 4096 {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				continue // another suite's, gone meanwhile
			}
			if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, "/"), Mode: 0o644, Size: int64(len(data))}); err != nil {
				return err
			}
			if _, err := tw.Write(data); err != nil {
				return err
			}
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return c.TarIn(ctx, id, "/", &b)
}
