package report

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bermhq/berm/attack"
)

// A layer is a group of walls that stand in one place. The first ones lie around
// each other, from outside to inside; the others are ways out of them.
type layer struct {
	name, about string
	walls       []string
}

var nested = []layer{
	{"Around each of its processes", "what this host's kernel holds the sandbox to", []string{"cgroup", "namespaces", "rights", "filter", "descriptors"}},
	{"Caps", "what it may use up", []string{"memory", "tasks", "disk", "output", "time", "cpu", "events"}},
	{"A kernel of its own", "what the program runs on, and what is in there with it", []string{"kernel", "kernel-state", "guest-user", "files", "here", "environment", "process"}},
}

var doors = []layer{
	{"The network", "what it may reach", []string{"network", "egress-policy", "gateway-link"}},
	{"Files", "what comes out of it", []string{"artifacts", "archives", "agent-link"}},
	{"The API", "who may ask for what", []string{"origin", "owner", "token", "tenant", "share", "inside"}},
	{"What stays", "what is kept of it, and what is not", []string{"record", "snapshot", "teardown"}},
}

// A layerView is a layer with what came against its walls.
type layerView struct {
	Name, About string
	Walls       []wallView
}

type wallView struct {
	Name, About string
	Anchor      string
	Class       string // the worst of what came against it
	Count       int
	Picture     picture
}

// layersOf sorts cases by the wall that must hold. A wall that no layer knows is
// not left out.
func layersOf(families []familyView) (out []layerView) {
	byWall := map[string][]item{}
	for _, f := range families {
		for _, it := range f.Items {
			byWall[it.Wall] = append(byWall[it.Wall], it)
		}
	}
	n := 0
	for _, l := range slices.Concat(nested, doors) {
		lv := layerView{Name: l.name, About: l.about}
		for _, name := range l.walls {
			n++
			lv.Walls = append(lv.Walls, wallOf(n, name, byWall[name]))
			delete(byWall, name)
		}
		out = append(out, lv)
	}
	rest := layerView{Name: "Elsewhere", About: "walls of other versions"}
	for _, name := range slices.Sorted(maps.Keys(byWall)) {
		n++
		rest.Walls = append(rest.Walls, wallOf(n, name, byWall[name]))
	}
	if len(rest.Walls) > 0 {
		out = append(out, rest)
	}
	return out
}

func wallOf(n int, name string, items []item) wallView {
	w := wallView{Name: name, About: attack.Walls[name], Anchor: fmt.Sprintf("w%d", n), Count: len(items), Class: "none"}
	if name == "" {
		w.Name = "not named"
	}
	for _, class := range []string{"breached", "unseen", "unsure", "held"} {
		if slices.ContainsFunc(items, func(it item) bool { return it.Class == class }) {
			w.Class = class
			break
		}
	}
	w.Picture = drawWall(items)
	return w
}
