package image

import (
	"bufio"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// A linker finds the libraries that a program or a module loads, the way the
// dynamic linker of the host would.
type linker struct {
	dirs []string // of ld.so.conf, then the built-in ones
}

// libKey tells two architectures apart.
type libKey struct {
	class   elf.Class
	machine elf.Machine
}

func newLinker(root *os.Root) *linker {
	l := &linker{}
	l.readConf(root, "/etc/ld.so.conf", 0)
	for _, pat := range expand([]string{"/etc/ld-musl-$A.path"}) {
		if b, err := readHost(root, pat, 1<<16); err == nil {
			l.dirs = append(l.dirs, strings.FieldsFunc(string(b), func(r rune) bool { return r == ':' || r == '\n' })...)
		}
	}
	for _, pat := range expand([]string{"/lib/$A-*", "/usr/lib/$A-*"}) {
		found, _ := fs.Glob(root.FS(), rel(pat))
		for _, d := range found {
			l.dirs = append(l.dirs, "/"+d)
		}
	}
	l.dirs = append(l.dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
	return l
}

// readConf reads ld.so.conf and what it includes.
func (l *linker) readConf(root *os.Root, p string, depth int) {
	b, err := readHost(root, p, 1<<16)
	if err != nil || depth > 4 {
		return
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if pat, ok := strings.CutPrefix(line, "include "); ok {
			pat = strings.TrimSpace(pat)
			if !path.IsAbs(pat) {
				pat = path.Join(path.Dir(p), pat)
			}
			found, _ := fs.Glob(root.FS(), rel(pat))
			for _, f := range found {
				l.readConf(root, "/"+f, depth+1)
			}
			continue
		}
		if path.IsAbs(line) {
			l.dirs = append(l.dirs, path.Clean(line))
		}
	}
}

// readHost reads a small file below root.
func readHost(root *os.Root, p string, most int64) ([]byte, error) {
	f, err := openRegular(root, rel(p))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// needs returns the host paths of the interpreter and the libraries that the
// file names itself. What is no ELF file, or a damaged one, needs nothing.
func (l *linker) needs(root *os.Root, p string, info fs.FileInfo) []string {
	name := path.Base(p)
	if info.Mode()&0o111 == 0 && !strings.Contains(name, ".so") && !strings.HasSuffix(name, ".node") || info.Size() < inodeSize {
		return nil
	}
	file, err := openRegular(root, rel(p))
	if err != nil {
		return nil
	}
	defer file.Close()
	f, key, ok := openELF(file)
	if !ok {
		return nil
	}
	var out []string
	for _, seg := range f.Progs {
		if seg.Type == elf.PT_INTERP && seg.Filesz < maxPath {
			b, _ := io.ReadAll(seg.Open())
			out = append(out, strings.TrimRight(string(b), "\x00"))
		}
	}
	libs, _ := f.DynString(elf.DT_NEEDED)
	if len(libs) == 0 {
		return out
	}
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, _ := f.DynString(tag)
		for _, list := range paths {
			for d := range strings.SplitSeq(list, ":") {
				d = strings.NewReplacer("$ORIGIN", path.Dir(p), "${ORIGIN}", path.Dir(p), "$LIB", "lib", "${LIB}", "lib").Replace(d)
				if path.IsAbs(d) {
					dirs = append(dirs, path.Clean(d))
				}
			}
		}
	}
	dirs = append(dirs, l.dirs...)
	for _, lib := range libs {
		if path.IsAbs(lib) {
			out = append(out, lib)
			continue
		}
		for _, d := range dirs {
			at := path.Join(d, lib)
			if l.fits(root, at, key) {
				out = append(out, at)
				break
			}
		}
	}
	return out
}

// fits says whether the library at p is one for key.
func (l *linker) fits(root *os.Root, p string, key libKey) bool {
	file, err := root.Open(rel(p))
	if err != nil {
		// An absolute symlink, which root refuses: let the collector decide.
		_, err = root.Lstat(rel(p))
		return err == nil
	}
	defer file.Close()
	_, got, ok := openELF(file)
	return ok && got == key
}

// openELF parses the headers, after a look at the magic number: most files are
// none, and the parser is slow to say so.
func openELF(file *os.File) (*elf.File, libKey, bool) {
	var magic [4]byte
	if _, err := file.ReadAt(magic[:], 0); err != nil || string(magic[:]) != elf.ELFMAG {
		return nil, libKey{}, false
	}
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, libKey{}, false
	}
	return f, libKey{f.Class, f.Machine}, true
}

// interpreter returns the program that a script names in its first line, or "".
func interpreter(root *os.Root, p string) string {
	f, err := openRegular(root, rel(p))
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if !strings.HasPrefix(line, "#!") {
		return ""
	}
	if w := strings.Fields(line[2:]); len(w) > 0 {
		return w[0]
	}
	return ""
}
