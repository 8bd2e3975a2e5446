package client

import (
	"path"
	"strings"
)

// What makes a folder a bare repository for git, which looks for one in every
// folder it is called in, and executes what its config and hooks name.
const (
	bareHead = 1 << iota
	bareObjects
	bareRefs
)

func bareMark(name string) int {
	switch strings.ToLower(name) {
	case "head":
		return bareHead
	case "objects":
		return bareObjects
	case "refs":
		return bareRefs
	case "commondir": // names the folder of the other two
		return bareObjects | bareRefs
	}
	return 0
}

// leaveBare refuses what would come into a folder that is a bare repository
// then, with what is there already.
func (p *plan) leaveBare(t *target) {
	marks := map[string]int{} // by folder below the target
	above := func(local string, f func(dir, name string)) {
		for local != "." {
			dir, name := path.Dir(local), path.Base(local)
			f(dir, name)
			local = dir
		}
	}
	for _, j := range p.jobs {
		if j.err == nil {
			above(j.local, func(dir, name string) { marks[dir] |= bareMark(name) })
		}
	}
	for dir, m := range marks {
		for _, name := range []string{"HEAD", "objects", "refs", "commondir"} {
			if bit := bareMark(name); m&bit != bit {
				if _, err := t.root.Lstat(path.Join(dir, name)); err == nil {
					marks[dir] |= bit
				}
			}
		}
	}
	for _, j := range p.jobs {
		if j.err != nil {
			continue
		}
		above(j.local, func(dir, _ string) {
			if marks[dir] == bareHead|bareObjects|bareRefs && j.err == nil {
				j.err = &Refusal{Rule: "out.dotgit", Reason: "its folder would be a git repository, whose settings and hooks are executed",
					Fix: "pack it into one archive inside, and bring that out"}
				p.h.budget.give(j.f.Size)
			}
		})
	}
}
