package deb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// base are the packages beside the essential ones that every root has, where a
// suite has them: the word that directories of / are links into /usr, which saves
// the package that would make them so, and perl with it; and apt, so
// that more can be installed inside.
var base = []string{"apt", "usr-is-merged"}

// Resolve finds what a root needs to have some packages: those named, as NAME or
// NAME=VERSION, the essential ones, apt, and what they depend on. The same names
// and indexes give the same set. Packages are in the order in which dpkg would
// unpack them.
//
// It decides as apt does in an empty root: the first alternative that can be
// had, the newest version, a real package before one that provides its name.
func (a *Archive) Resolve(names []string) (Set, error) {
	a.opt.Progress(api.TemplateProgress{Phase: "resolve"})
	s := &solver{x: a.index, recommends: a.opt.Recommends, chosen: map[string]*candidate{}, pinned: map[string]*candidate{}, asked: map[string]bool{}}
	if err := s.ask(names); err != nil {
		return Set{}, err
	}
	if err := s.solve(); err != nil {
		return Set{}, err
	}
	set := Set{Suite: a.sources[0].suite, Arch: a.index.arch, Sources: a.sourcesList(), Keys: a.keys, Slim: a.opt.Slim}
	for _, c := range s.unpackOrder() {
		p := c.Package
		p.AutoSelected = !s.asked[p.Name] && !slices.Contains(base, p.Name)
		set.Packages = append(set.Packages, p)
	}
	return set, nil
}

// A solver holds the state of one resolution.
type solver struct {
	x          *index
	recommends bool
	pinned     map[string]*candidate // versions that were asked for
	asked      map[string]bool
	roots      []*candidate
	chosen     map[string]*candidate
	trail      []string // chosen names in order, to take choices back
	done       map[string]bool
	why        []string // the chain from a root to here
	worst      error    // the deepest refusal
	depth      int      // of worst
	steps      int
}

const unresolvable = "name other packages or versions, or another suite"

// ask looks the names up. Those asked for are chosen before anything else is, so
// that alternatives are satisfied by them.
func (s *solver) ask(names []string) error {
	for _, n := range names {
		name, version, exact := strings.Cut(n, "=")
		name = strings.TrimSuffix(name, ":"+s.x.arch)
		c, err := s.find(name, version, exact)
		if err != nil {
			return err
		}
		if old := s.pinned[c.Name]; old != nil && old != c {
			return invalid("name it once", "package %s is asked for as %s and as %s", c.Name, old.Version, c.Version)
		}
		if exact {
			s.pinned[c.Name] = c
		}
		if s.asked[c.Name] = true; !slices.Contains(s.roots, c) {
			s.roots = append(s.roots, c)
		}
	}
	s.roots = slices.DeleteFunc(s.roots, func(c *candidate) bool { return s.best(c.Name) != c })
	var always []*candidate
	for name, list := range s.x.byName {
		if list[0].Essential || slices.Contains(base, name) {
			always = append(always, s.best(name))
		}
	}
	slices.SortFunc(always, func(a, b *candidate) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range s.roots {
		if !slices.Contains(always, c) {
			always = append(always, c)
		}
	}
	s.roots = always // what every root has is settled first
	return nil
}

func (s *solver) find(name, version string, exact bool) (*candidate, error) {
	if !packageName(name) {
		return nil, invalid("NAME or NAME=VERSION", "%q is not the name of a package", short(name))
	}
	list := s.x.byName[name]
	if exact {
		for _, c := range list {
			if c.Version == version {
				return c, nil
			}
		}
		if len(list) > 0 {
			return nil, invalid("ask for one of the versions there are", "package %s has no version %q here, but %s", name, short(version), versions(list))
		}
	}
	if len(list) > 0 {
		return list[0], nil
	}
	switch by := providers(s.x.provided[name]); len(by) {
	case 0:
		return nil, invalid("look for the name with apt-cache search, or name another suite or component", "there is no package %s", name)
	case 1:
		return by[0], nil
	default:
		var of []string
		for _, c := range by {
			of = append(of, c.Name)
		}
		return nil, invalid("name one of them", "package %s is virtual, and provided by %s", name, strings.Join(of, ", "))
	}
}

func providers(list []provision) []*candidate {
	var by []*candidate
	for _, p := range list {
		if !slices.Contains(by, p.by) {
			by = append(by, p.by)
		}
	}
	return by
}

func versions(list []*candidate) string {
	var v []string
	for _, c := range list {
		v = append(v, c.Version)
	}
	return strings.Join(v, ", ")
}

// best is the version of a package that may be chosen, nil if there is none.
func (s *solver) best(name string) *candidate {
	if c := s.pinned[name]; c != nil {
		return c
	}
	if list := s.x.byName[name]; len(list) > 0 {
		return list[0]
	}
	return nil
}

func (s *solver) solve() error {
	s.done = map[string]bool{}
	for _, c := range s.roots {
		if err := s.take(c); err != nil {
			return s.explain(err)
		}
	}
	for _, c := range s.roots {
		if err := s.need(c); err != nil {
			return s.explain(err)
		}
	}
	return nil
}

func (s *solver) explain(err error) error {
	return invalid(unresolvable, "%v", cmp.Or(s.worst, err))
}

// install chooses a package with all it needs, or nothing.
func (s *solver) install(c *candidate) error {
	mark := len(s.trail)
	err := s.take(c)
	if err == nil {
		err = s.need(c)
	}
	if err != nil {
		for _, name := range s.trail[mark:] {
			delete(s.chosen, name)
			delete(s.done, name)
		}
		s.trail = s.trail[:mark]
	}
	return err
}

// take chooses a package if nothing that is chosen speaks against it.
func (s *solver) take(c *candidate) error {
	if old := s.chosen[c.Name]; old != nil {
		if old != c {
			return s.refuse("%s %s is needed, and %s is chosen", c.Name, c.Version, old.Version)
		}
		return nil
	}
	if s.steps++; s.steps > 200_000 {
		return s.refuse("too many ways to choose")
	}
	if len(s.chosen) >= maxSet {
		return s.refuse("over %d packages", maxSet)
	}
	for _, name := range s.trail {
		other := s.chosen[name]
		if other == nil {
			continue
		}
		if r, ok := s.against(c, other); ok {
			return s.refuse("%s conflicts with %s, which is chosen (%s)", c.Name, other.Name, r)
		}
		if r, ok := s.against(other, c); ok {
			return s.refuse("%s, which is chosen, conflicts with %s (%s)", other.Name, c.Name, r)
		}
	}
	s.chosen[c.Name] = c
	s.trail = append(s.trail, c.Name)
	return nil
}

// against says whether a has a Conflicts or Breaks that b is in.
func (s *solver) against(a, b *candidate) (relation, bool) {
	if a.conflicts == "" && a.breaks == "" {
		return relation{}, false
	}
	for _, g := range s.x.relations(a).against {
		for _, r := range g {
			if r.name == b.Name && r.admits(b.Version) || a != b && s.x.provides(b, r) {
				return r, true
			}
		}
	}
	return relation{}, false
}

// need chooses what a package depends on.
func (s *solver) need(c *candidate) error {
	if s.done[c.Name] {
		return nil
	}
	s.done[c.Name] = true
	s.why = append(s.why, c.Name+" "+c.Version)
	defer func() { s.why = s.why[:len(s.why)-1] }()
	rel := s.x.relations(c)
	if rel.err != nil {
		return s.refuse("%s", rel.err)
	}
	for _, alts := range rel.needs {
		if err := s.oneOf(alts); err != nil {
			return err
		}
	}
	if s.recommends {
		for _, alts := range rel.wants {
			if err := s.oneOf(alts); err != nil {
				s.worst, s.depth = nil, 0 // it may be missing
			}
		}
	}
	return nil
}

// oneOf makes one of some alternatives true.
func (s *solver) oneOf(alts alternatives) error {
	for _, r := range alts {
		if s.satisfied(r) {
			return nil
		}
	}
	var err error
	found := false
	for _, c := range s.options(alts) {
		found = true
		if err = s.install(c); err == nil {
			s.worst, s.depth = nil, 0
			return nil
		}
	}
	if !found {
		return s.refuse("needs %s, which is not to be had%s", alts, s.instead(alts))
	}
	return err
}

// options are the packages that satisfy some alternatives, the preferred first.
func (s *solver) options(alts alternatives) []*candidate {
	var list []*candidate
	add := func(c *candidate) {
		if c != nil && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	for _, r := range alts {
		if !s.archFits(r) {
			continue
		}
		if c := s.best(r.name); c != nil && r.admits(c.Version) && s.qualifies(r, c) {
			add(c)
		}
		for _, p := range s.x.provided[r.name] {
			if s.best(p.by.Name) == p.by && provisionFits(p, r) {
				add(p.by)
			}
		}
	}
	return list
}

// instead says which versions there are of what is missing.
func (s *solver) instead(alts alternatives) string {
	for _, r := range alts {
		if c := s.best(r.name); c != nil {
			return fmt.Sprintf(" (there is %s %s)", c.Name, c.Version)
		}
	}
	return ""
}

// satisfied says whether a chosen package does already.
func (s *solver) satisfied(r relation) bool {
	if !s.archFits(r) {
		return false
	}
	if c := s.chosen[r.name]; c != nil && r.admits(c.Version) && s.qualifies(r, c) {
		return true
	}
	for _, p := range s.x.provided[r.name] {
		if s.chosen[p.by.Name] == p.by && provisionFits(p, r) {
			return true
		}
	}
	return false
}

// archFits: there is one architecture in a root.
func (s *solver) archFits(r relation) bool {
	return r.arch == "" || r.arch == "any" || r.arch == "native" || r.arch == s.x.arch
}

// qualifies: name:any is for packages that allow it.
func (s *solver) qualifies(r relation, c *candidate) bool {
	return r.arch != "any" || c.multiArch == "allowed" || c.multiArch == "foreign"
}

// provisionFits: a versioned dependency needs a versioned Provides.
func provisionFits(p provision, r relation) bool {
	return r.op == "" || p.version != "" && r.admits(p.version)
}

// refuse is the error of a dead end, with the chain that led to it.
func (s *solver) refuse(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if len(s.why) > 0 {
		err = fmt.Errorf("%s: %w", strings.Join(s.why, " -> "), err)
	}
	if s.worst == nil || len(s.why) > s.depth {
		s.worst, s.depth = err, len(s.why)
	}
	return err
}
