package main

import (
	"net/http"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/daemon"
)

// exhaustionWalls are caps beside those of requestWalls.
var exhaustionWalls = []wall{
	{
		name: "cpu", without: "no share of processors",
		create: func(r *api.CreateRequest) { r.Limits.CPUs = api.Unlimited },
	},
	{
		name: "events", without: "no budget of events",
		front: func(*front, *http.Request) {},
		daemon: func(o *daemon.ServeOptions) {
			o.Events.Events, o.Events.Bytes, o.Events.TenantBytes = 1<<40, 1<<50, 1<<50
		},
	},
}
