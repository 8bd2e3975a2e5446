package main

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path"
	"strconv"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// onHost runs a program of the suite on this host, and lets the sandbox say what
// it said. Only those are run so that go for what has a number, a key, a segment or
// a process: they read it and change nothing. What else they are told stays inside.
func onHost(ctx context.Context, c *client.Client, id string, r *api.ExecRequest, f facts) error {
	if numbers := f.that(func(at string) bool { _, err := strconv.Atoi(at); return err == nil }); len(numbers) == 0 {
		return nil // it goes for something else
	}
	dir, err := os.MkdirTemp("", "berm-weak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := client.Extract(ctx, c, id, []client.Out{{Pattern: "*.py", Local: dir}}, 1<<20); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Below a shell, which holds nothing: the program looks at who started it.
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `"$@"; exit $?`, "sh"}, r.Args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, []string{"PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}, time.Second
	said, err := cmd.Output()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	name := path.Join(hostInside, "said")
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(said))}); err != nil {
		return err
	}
	if _, err := tw.Write(said); err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return err
	}
	r.Args = []string{"cat", "/" + name}
	return c.TarIn(ctx, id, "/", &b)
}
