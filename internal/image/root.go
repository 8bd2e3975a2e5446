package image

import "github.com/bermhq/berm/api"

// A Root is what a sandbox boots: the names of its layers, lowest first, and
// what its processes are by default. One layer is booted as it is; more are
// stacked inside, so what templates share is on disk and in memory once.
type Root struct {
	Layers   []string `json:"layers"`
	Defaults Defaults `json:"defaults"`
}

// Defaults are an image's configuration with its names looked up.
type Defaults struct {
	api.TemplateConfig
	UID  uint32 `json:"uid"` // of commands that name no user; 0 only with Root
	GID  uint32 `json:"gid"`
	Home string `json:"home,omitempty"` // of that user
	Root bool   `json:"root,omitempty"` // commands may be the guest's root
}
