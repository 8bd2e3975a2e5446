package deb

import (
	"slices"
	"strings"
)

// relations are what a candidate says of others, parsed.
type relations struct {
	needs   []alternatives // Pre-Depends, then Depends
	pre     int            // how many of needs are Pre-Depends
	wants   []alternatives // Recommends
	against []alternatives // Conflicts and Breaks
	err     error
}

// relations parses what c says.
func (x *index) relations(c *candidate) relations {
	if r, ok := x.parsed(c); ok {
		return r
	}
	var r relations
	read := func(text string) []alternatives {
		list, err := parseRelations(text, x.arch)
		if err != nil && r.err == nil {
			r.err = err
		}
		return list
	}
	r.needs = read(c.preDepends)
	r.pre = len(r.needs)
	r.needs = append(r.needs, read(c.depends)...)
	r.wants = read(c.recommends)
	r.against = append(read(c.conflicts), read(c.breaks)...)
	x.keep(c, r)
	return r
}

// parsed and keep remember what relations parsed; an archive is used by several
// goroutines.
func (x *index) parsed(c *candidate) (relations, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.memo[c]
	return r, ok
}

func (x *index) keep(c *candidate, r relations) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.memo == nil {
		x.memo = map[*candidate]relations{}
	}
	x.memo[c] = r
}

// provides says whether b provides the name of r in its range.
func (x *index) provides(b *candidate, r relation) bool {
	if b.provides == "" {
		return false
	}
	for _, p := range x.provided[r.name] {
		if p.by == b && provisionFits(p, r) {
			return true
		}
	}
	return false
}

// unpackOrder sorts the chosen packages so that each comes after what it needs,
// as far as circles allow. Names decide where nothing else does.
func (s *solver) unpackOrder() []*candidate {
	var names []string
	for name := range s.chosen {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		ea, eb := s.chosen[a].Essential, s.chosen[b].Essential
		if ea != eb {
			if ea {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var order []*candidate
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, alts := range s.x.relations(s.chosen[name]).needs {
			for _, r := range alts {
				if c := s.chosen[r.name]; c != nil && r.admits(c.Version) {
					visit(c.Name)
					continue
				}
				for _, p := range s.x.provided[r.name] {
					if s.chosen[p.by.Name] == p.by && provisionFits(p, r) {
						visit(p.by.Name)
					}
				}
			}
		}
		order = append(order, s.chosen[name])
	}
	for _, name := range names {
		visit(name)
	}
	return order
}
