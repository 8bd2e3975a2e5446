package main

import "github.com/bermhq/berm/api"

// exhaustionWalls are caps beside those of requestWalls.
var exhaustionWalls = []wall{
	{
		name: "cpu", without: "no share of processors",
		create: func(r *api.CreateRequest) { r.Limits.CPUs = api.Unlimited },
	},
}
