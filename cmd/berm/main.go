// Command berm runs code that nobody reviewed in a disposable sandbox. It is
// one static binary: main only says which part of it a process is.
package main

import (
	"context"
	"fmt"
	"os"
	"time"
	"encoding/json"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/daemon"
	"github.com/bermhq/berm/internal/image"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "keeper":
			part(daemon.RunKeeper)
		case "worker":
			part(daemon.RunWorker)
		}
	}
	t0 := time.Now()
	l, err := daemon.Start(context.Background(), daemon.Options{Sandbox: program("sandbox"), Agent: program("agent"), Debug: os.Stderr, Image: image.Options{}})
	if err != nil {
		fmt.Println("start", err)
		os.Exit(1)
	}
	fmt.Println("started", time.Since(t0))
	c := client.New(client.Options{Dial: l.Dial})
	ctx := context.Background()
	s, err := c.Create(ctx, api.CreateRequest{Template: l.Template})
	fmt.Println("created", time.Since(t0), err)
	if err == nil {
		b, _ := json.Marshal(s)
		fmt.Println(string(b))
		r, err := c.Exec(ctx, s.SandboxID, api.ExecRequest{Args: os.Args[1:]}, client.Stdio{Stdout: os.Stdout, Stderr: os.Stderr})
		fmt.Println("exec", time.Since(t0), r, err)
		e, err := c.Delete(ctx, s.SandboxID)
		fmt.Println("deleted", time.Since(t0), e, err)
	}
	fmt.Println(l.Close())
	fmt.Println("closed", time.Since(t0))
}

func part(run func([]string) error) {
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "berm: %s: %v\n", os.Args[1], err)
		os.Exit(125)
	}
	os.Exit(0)
}
