package main

import "github.com/bermhq/berm/internal/daemon"

// standIn puts the stand-in in the place of a part, as berm's own does.
func standIn(o *daemon.Options, part string) {
	p := program("standin")
	p.Aside = true
	switch part {
	case "sentry", "gateway":
		o.Sandbox = p
	case "agent":
		o.Agent = p
	}
}
