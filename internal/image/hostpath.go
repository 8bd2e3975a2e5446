package image

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// resolve follows a host path to what it means, through permitted places only,
// and returns that path and the symlinks on the way.
func (c *collector) resolve(p string) (real string, links []string, err error) {
	todo, cur := strings.Split(p, "/"), ""
	for hops := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			cur = strings.TrimSuffix(path.Dir("/"+cur), "/")
			continue
		}
		next := cur + "/" + name
		if belowAny(next, c.banned) || !c.permitted(next) && !leadsTo(next, c.allowed) {
			return "", nil, fmt.Errorf("%s: outside of what may be included", next)
		}
		info, err := c.lstat(next)
		if err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			cur = next
			continue
		}
		if hops++; hops > maxHops {
			return "", nil, errTooDeep
		}
		target, err := c.root.Readlink(rel(next))
		if err != nil {
			return "", nil, err
		}
		links = append(links, next)
		if path.IsAbs(target) {
			cur = ""
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	if !c.permitted(cur) {
		return "", nil, fmt.Errorf("%s: outside of what may be included", cur)
	}
	return cur, links, nil
}

// leadsTo says whether dir is above one of the roots.
func leadsTo(dir string, roots []string) bool {
	for _, r := range roots {
		if below(r, dir) {
			return true
		}
	}
	return false
}
