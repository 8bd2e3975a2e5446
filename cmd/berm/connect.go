package main

import (
	"context"
	"path/filepath"

	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/daemon"
)

// connect finds the daemon in force. It starts nothing and makes nothing.
func connect(_ context.Context, o cli.ConnectOptions) (*cli.Session, error) {
	dir := o.StateDir
	if dir == "" {
		dir = daemon.DefaultStateDir()
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	token := ""
	if o.TokenFile != "" {
		if token, err = client.ReadToken(o.TokenFile); err != nil {
			return nil, err
		}
	}
	c, err := client.Discover(dir, o.URL, token)
	if err != nil {
		return nil, err
	}
	return &cli.Session{Client: c, Close: func() error { c.Close(); return nil }}, nil
}
