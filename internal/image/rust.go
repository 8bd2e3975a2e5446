package image

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"
)

// rustHome is where a toolchain of rustup's is inside; rustup itself, which
// picks one of many, stays out.
const rustHome = "/usr/local/lib/rust"

// rustParts of a toolchain are taken: patterns below it.
var rustParts = []string{"bin/cargo", "bin/rustc", "bin/rustdoc", "lib/*.so", "lib/*.so.*", "lib/rustlib/*-*-*/lib/*", "lib/rustlib/*-*-*/bin/rust-lld",
	"lib/rustlib/*-*-*/bin/gcc-ld/*"}

var rustDefault = regexp.MustCompile(`(?m)^default_toolchain\s*=\s*"([A-Za-z0-9._-]+)"`)

// rustToolchain is the folder of the toolchain that is in use in one of these
// homes of rustup, or "". A toolchain that leads elsewhere is somebody's own
// build and is left alone.
func rustToolchain(root *os.Root, homes []string) string {
	for _, home := range homes {
		text, err := readHost(root, path.Join(home, "settings.toml"), 1<<16)
		if err != nil {
			continue
		}
		m := rustDefault.FindSubmatch(text)
		if m == nil {
			continue
		}
		all := path.Join(home, "toolchains")
		for _, pat := range []string{string(m[1]), string(m[1]) + "-" + expand([]string{"$A"})[0] + "-unknown-linux-*"} {
			for _, dir := range glob(root, []string{path.Join(all, pat)}) {
				if to, err := root.Readlink(rel(dir)); err == nil {
					if dir = path.Join(all, to); path.IsAbs(to) {
						dir = to
					}
					if path.Dir(dir) != all {
						continue
					}
				}
				if info, err := root.Lstat(rel(dir)); err != nil || !info.IsDir() {
					continue
				}
				if info, err := root.Lstat(rel(dir) + "/bin/cargo"); err == nil && info.Mode().IsRegular() {
					return dir
				}
			}
		}
	}
	return ""
}

// takeRust takes a toolchain out of the home that it is in, to a place that is
// nobody's. Only what rustup unpacked there is taken: regular files of root's or
// our own.
func (c *collector) takeRust(dir string) {
	for _, pat := range rustParts {
		found, _ := fs.Glob(c.root.FS(), rel(path.Join(dir, pat)))
		for _, p := range found {
			p = "/" + p
			dest := rustHome + strings.TrimPrefix(p, dir)
			info, err := c.lstat(p)
			if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 || belowAny(dest, c.banned) || strings.Contains(path.Base(p), "-stable_rt.") {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() || !c.bindAs(dest, p, info) {
				continue
			}
			for _, lib := range c.link.needs(c.root, p, info) {
				c.take(lib)
			}
		}
	}
	for _, name := range []string{"cargo", "rustc", "rustdoc"} {
		link := "/usr/local/bin/" + name
		if c.have[rustHome+"/bin/"+name] && c.tree.find(link) == nil && c.tree.add(link, newLink("../lib/rust/bin/"+name)) == nil {
			c.added = append(c.added, binding{dir: c.tree.find("/usr/local/bin"), name: name, path: link})
		}
	}
}
