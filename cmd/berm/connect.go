package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/bermhq/berm/api"
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
	if o.URL == "" && os.Getenv("BERM_URL") == "" {
		if err := daemon.Trusted(dir); err != nil { // somebody else may listen there
			c.Close()
			return nil, &api.Error{Code: api.CodeHostFailure, Message: "state directory: " + err.Error(), Hint: "berm --state DIR ..., or BERM_URL and BERM_TOKEN"}
		}
	}
	return &cli.Session{Client: c, Close: func() error { c.Close(); return nil }}, nil
}
