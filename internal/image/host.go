package image

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

func hostRecipe(opt Options) recipe {
	opt.HostRoot = cmp.Or(opt.HostRoot, "/")
	return recipe{
		template: Host,
		key:      func() (string, error) { return hostKey(opt) },
		build:    func(m *meter) (built, error) { return buildHost(opt, m) },
	}
}

// buildHost reads the host's tools into a tree.
func buildHost(opt Options, m *meter) (built, error) {
	root, err := os.OpenRoot(opt.HostRoot)
	if err != nil {
		return built{}, fail(api.CodeTemplateNotFound, "open the host's files: "+err.Error(), "check the host root")
	}
	b, err := collectHost(root, opt, m)
	if err != nil {
		root.Close()
		return built{}, err
	}
	b.close = func() { root.Close() }
	return b, nil
}

func collectHost(root *os.Root, opt Options, m *meter) (built, error) {
	c := &collector{
		root: root, tree: newTree(), m: m,
		allowed: slices.Concat(hostRoots, opt.Include),
		banned:  opt.Exclude,
		prune:   hostPrune,
		inodes:  map[inode]*node{},
		have:    map[string]bool{},
		link:    newLinker(root),
	}
	etc := glob(root, expand(etcFiles))
	c.allowed = append(c.allowed, etc...)
	for _, p := range hostRoots { // /bin -> usr/bin and the like
		if info, err := c.lstat(p); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			c.bind(p, info)
		}
	}
	for _, p := range etc {
		c.take(p)
	}
	for _, p := range opt.Include {
		if !c.take(p) {
			return built{}, fail(api.CodeTemplateNotFound,
				fmt.Sprintf("cannot include %s: it does not exist, is not readable by others, or is a symlink to another place", p),
				"include the place it leads to, or make it readable")
		}
	}
	programs := listPrograms(root)
	var out built
	limit := maxBytes(Host, opt)
	for _, g := range hostGroups {
		c.added = nil
		c.takeGroup(g, programs)
		if g.name == "rust" && c.tree.find("/usr/bin/cargo") == nil && c.tree.find("/usr/local/bin/cargo") == nil {
			if dir := rustToolchain(root, opt.Rustup); dir != "" {
				c.takeRust(dir)
			}
		}
		if err := m.ctx.Err(); err != nil {
			return built{}, err
		}
		if g.optional && c.bytes > limit-limit/64 { // room for names and inodes
			c.undo()
			out.leftOut = append(out.leftOut, g.name)
		}
	}
	out.tree = c.tree
	return out, addHostFiles(c.tree, opt)
}

func (c *collector) takeGroup(g group, programs map[string][]string) {
	c.prune = slices.Concat(hostPrune, expand(g.prune))
	for _, pat := range expand(g.commands) {
		if !strings.ContainsAny(pat, "*?[") || pat == "[" {
			for _, p := range programs[pat] {
				c.takeCommand(p)
			}
			continue
		}
		for name, paths := range programs {
			if ok, _ := path.Match(pat, name); ok {
				for _, p := range paths {
					c.takeCommand(p)
				}
			}
		}
	}
	for _, p := range glob(c.root, expand(g.trees)) {
		if !c.pruned(p, path.Base(p)) {
			c.take(p)
		}
	}
}

// takeCommand takes a program, unless it or its interpreter is somewhere that
// stays out: then the next one of that name in PATH is the right one.
func (c *collector) takeCommand(p string) {
	real, _, err := c.resolve(p)
	if err != nil {
		return
	}
	if info, err := c.lstat(real); err != nil || !info.Mode().IsRegular() {
		return
	}
	if by := interpreter(c.root, real); by != "" && !c.take(by) {
		return
	}
	c.take(p)
}

// listPrograms maps the names of all programs to their paths.
func listPrograms(root *os.Root) map[string][]string {
	out := map[string][]string{}
	for _, dir := range programDirs {
		info, err := root.Lstat(rel(dir))
		if err != nil || !info.IsDir() { // a symlink: its target is in the list too
			continue
		}
		f, err := root.Open(rel(dir))
		if err != nil {
			continue
		}
		names, _ := f.Readdirnames(-1)
		f.Close()
		for _, name := range names {
			out[name] = append(out[name], path.Join(dir, name))
		}
	}
	return out
}

// glob returns the host paths that match.
func glob(root *os.Root, patterns []string) []string {
	var out []string
	for _, pat := range patterns {
		if !strings.ContainsAny(pat, "*?[") {
			out = append(out, pat)
			continue
		}
		found, _ := fs.Glob(root.FS(), rel(pat))
		for _, f := range found {
			out = append(out, "/"+f)
		}
	}
	return out
}

// addHostFiles adds what is generated: the skeleton and /etc.
func addHostFiles(t *tree, opt Options) error {
	if err := addSkeleton(t); err != nil {
		return err
	}
	for _, p := range hostSkeleton {
		if t.find(p) == nil {
			if err := t.add(p, newDir(0o755)); err != nil {
				return err
			}
		}
	}
	home := uint32(0o700)
	if slices.ContainsFunc(opt.Include, func(p string) bool { return below(p, "/root") }) {
		home = 0o755 // else nobody could reach what was asked for
	}
	if err := t.add("/root", newDir(home)); err != nil {
		return err
	}
	if err := addGuestFiles(t); err != nil {
		return err
	}
	shells := ""
	for _, p := range []string{"/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh"} {
		if t.find(p) != nil {
			shells += p + "\n"
		}
	}
	for p, n := range map[string]*node{
		"/etc/shells":    newFile(0o644, []byte(shells)),
		"/etc/profile":   newFile(0o644, []byte(profileFile)),
		"/etc/localtime": newLink("/usr/share/zoneinfo/Etc/UTC"),
		"/etc/timezone":  newFile(0o644, []byte("Etc/UTC\n")),
		"/etc/mtab":      newLink("/proc/self/mounts"),
	} {
		if err := t.add(p, n); err != nil {
			return err
		}
	}
	return nil
}
