package main

import "github.com/bermhq/berm/internal/daemon"

// standIn puts the program that `berm attack` runs in the place of a part of a
// sandbox there. It harms nothing but that sandbox.
func standIn(o *daemon.Options, part string) {
	p := program("standin")
	p.Aside = true
	switch part {
	case "sentry", "gateway": // one program is both
		o.Sandbox = p
	case "agent":
		o.Agent = p
	}
}
