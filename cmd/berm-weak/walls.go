package main

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// A wall is one that can be taken out: what is done to requests on their way,
// and which cases must see it. The first of them is the quickest.
type wall struct {
	name    string
	without string
	red     []string

	create  func(*api.CreateRequest)                                     // before a sandbox is made
	created func(ctx context.Context, c *client.Client, id string) error // after it was
	exec    func(*api.ExecRequest)                                       // before a command starts
	forget  bool                                                         // nothing is ended or deleted
}

// Without a cap, programs still end by bounds of their own, and other caps hold.
var walls = []wall{
	{
		name: "env", without: "the caller's environment goes in",
		red: []string{"credentials-env", "hostread-proc"},
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
		name: "files", without: "files of the host's temporary folders go in",
		red:     []string{"credentials-tmp", "hostread-files"},
		created: copyTemporaries,
	},
	{
		name: "memory", without: "no memory cap",
		red:    []string{"caps-memory-heap", "caps-memory-tmpfs", "caps-memory-pipes", "caps-memory-inodes"},
		create: func(r *api.CreateRequest) { r.Limits.MemoryBytes = 2 << 30 },
	},
	{
		name: "pids", without: "no task cap",
		red:    []string{"caps-thread-bomb", "caps-fork-bomb", "caps-zombies"},
		create: func(r *api.CreateRequest) { r.Limits.Pids = 2000 },
	},
	{
		name: "disk", without: "no disk cap",
		red:    []string{"caps-disk-big", "caps-disk-small"},
		create: func(r *api.CreateRequest) { r.Limits.DiskBytes = 2 << 30 },
	},
	{
		name: "output", without: "no output cap",
		red:    []string{"caps-output-flood"},
		create: func(r *api.CreateRequest) { r.Limits.OutputBytes = 1 << 30 },
	},
	{
		name: "time", without: "no deadline",
		red:    []string{"caps-endless"},
		create: func(r *api.CreateRequest) { r.Limits.TimeoutSeconds = 60 },
	},
	openWire,
	{
		name: "teardown", without: "nothing is ended when a session is closed",
		red:    []string{"hostread-kernel"},
		forget: true,
	},
}

func find(name string) (wall, bool) {
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
