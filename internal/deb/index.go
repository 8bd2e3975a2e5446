package deb

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A candidate is a version of a package as an index has it. Relations are kept
// as text, since few of them are ever looked at.
type candidate struct {
	Package
	preDepends, depends, recommends string
	conflicts, breaks, provides     string
	priority                        int
	multiArch                       string
	seen                            int  // how early its name was mentioned, smaller is earlier
	optional                        bool // only by version
}

// An index is all candidates of an archive.
type index struct {
	arch     string
	origins  []string
	byName   map[string][]*candidate // the best first, once finish was called
	provided map[string][]provision  // by virtual name
	count    int
	seen     map[string]int

	mu   sync.Mutex
	memo map[*candidate]relations // what was parsed so far
}

// A provision is a package that provides a name, with a version or without.
type provision struct {
	by      *candidate
	version string
}

func newIndex(arch string) *index {
	return &index{arch: arch, byName: map[string][]*candidate{}, provided: map[string][]provision{}, seen: map[string]int{}}
}

// mention gives a name its number.
func (x *index) mention(name string) int {
	n, ok := x.seen[name]
	if !ok {
		n = len(x.seen)
		x.seen[strings.Clone(name)] = n
	}
	return n
}

// read adds a Packages file.
func (x *index) read(r io.Reader, s source, optional bool) error {
	in := bufio.NewReaderSize(r, 1<<20)
	var para []byte
	for {
		line, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull || len(para)+len(line) > 1<<20 {
			return fmt.Errorf("%w: a paragraph of over a megabyte", errControl)
		}
		if blank := len(bytes.TrimRight(line, " \t\r\n")) == 0; !blank {
			para = append(para, line...)
		} else if len(para) > 0 {
			if err := x.add(para, s, optional); err != nil {
				return err
			}
			para = para[:0]
		}
		if err == io.EOF {
			if len(para) > 0 {
				return x.add(para, s, optional)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add reads one paragraph of an index.
func (x *index) add(para []byte, s source, optional bool) error {
	c := &candidate{optional: optional, priority: 4}
	c.Mirror = s.uri
	bad := false
	number := func(v []byte) int64 {
		n, err := strconv.ParseInt(string(v), 10, 64)
		bad = bad || err != nil || n < 0
		return n
	}
	skip := false
	for len(para) > 0 {
		var line []byte
		line, para, _ = bytes.Cut(para, []byte("\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if line[0] == ' ' || line[0] == '\t' || !ok {
			continue // descriptions and tags; none of what is read below has a second line
		}
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "Package":
			c.Name = string(value)
		case "Version":
			c.Version = string(value)
		case "Architecture":
			c.Arch = string(value)
		case "Essential":
			c.Essential = string(value) == "yes"
		case "Filename":
			c.Filename = string(value)
		case "Size":
			c.Size = number(value)
		case "Installed-Size":
			c.Installed = number(value) << 10
		case "SHA256":
			c.SHA256 = string(value)
		case "Priority":
			c.priority = slices.Index([]string{"required", "important", "standard", "optional"}, string(value))
			if c.priority < 0 {
				c.priority = 4
			}
		case "Multi-Arch":
			c.multiArch = string(value)
		case "Pre-Depends":
			c.preDepends = string(value)
		case "Depends":
			c.depends = string(value)
		case "Recommends":
			c.recommends = string(value)
		case "Conflicts":
			c.conflicts = string(value)
		case "Breaks":
			c.breaks = string(value)
		case "Provides":
			c.provides = string(value)
		case "Phased-Update-Percentage":
			skip = string(value) != "100" // an update that its makers hold back
		}
	}
	if skip || c.Arch != x.arch && c.Arch != "all" {
		return nil
	}
	if bad || !packageName(c.Name) || !validVersion(c.Version) || !isSHA256(c.SHA256) || c.Size <= 0 || c.Size > maxDeb || !localPath(c.Filename) {
		return fmt.Errorf("%w: package %q is not described in full", errControl, short(c.Name))
	}
	if x.count++; x.count > maxPackages {
		return fmt.Errorf("over %d packages", maxPackages)
	}
	c.MultiSame = c.multiArch == "same"
	c.seen = x.mention(c.Name)
	x.byName[c.Name] = append(x.byName[c.Name], c)
	return nil
}

// localPath says whether a path stays below where it starts.
func localPath(p string) bool {
	return p != "" && p[0] != '/' && path.Clean(p) == p && p != ".." && !strings.HasPrefix(p, "../") && !strings.ContainsAny(p, "\\?#%\x00")
}

// finish sorts what was read. A version that two sources have is the first's.
func (x *index) finish() {
	for name, list := range x.byName {
		slices.SortStableFunc(list, func(a, b *candidate) int {
			if a.optional != b.optional {
				if a.optional {
					return 1
				}
				return -1
			}
			return compareVersions(b.Version, a.Version)
		})
		x.byName[name] = slices.CompactFunc(list, func(a, b *candidate) bool { return a.Version == b.Version })
	}
	for _, list := range x.byName {
		c := list[0]
		if c.provides == "" {
			continue
		}
		groups, err := parseRelations(c.provides, x.arch)
		if err != nil {
			continue // whoever needs it will not find it
		}
		for _, g := range groups {
			for _, r := range g {
				if r.op == "" || r.op == "=" {
					x.provided[r.name] = append(x.provided[r.name], provision{c, r.version})
				}
			}
		}
	}
	for _, list := range x.provided {
		slices.SortFunc(list, func(a, b provision) int { return x.prefer(a.by, b.by) })
	}
	x.seen = nil
}

// prefer orders packages that provide the same: as apt does, so that both come
// to the same root. Where nothing speaks for either, what apt read last wins.
func (x *index) prefer(a, b *candidate) int {
	switch {
	case a.Essential != b.Essential:
		if a.Essential {
			return -1
		}
		return 1
	case a.priority != b.priority:
		return a.priority - b.priority
	case a.seen != b.seen:
		return b.seen - a.seen
	}
	return strings.Compare(a.Name, b.Name)
}
