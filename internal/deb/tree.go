package deb

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"strings"
)

// A node is what is at a path of the root that is being written.
type node struct {
	kind  byte   // as a tar has it
	link  string // of a symbolic link
	owner int    // of a file or link: index of its package, ours below 0
}

// owned by nobody's package.
const (
	ours    = -1
	pending = -2 // the package that is being read
)

// A tree knows what a root has so far, and writes the rest.
type tree struct {
	out   *tar.Writer
	nodes map[string]node // by path without a slash at either end; "" is there
}

const (
	maxNodes  = 4_000_000
	maxPath   = 4096
	maxFollow = 40
)

// merged are the directories that are links into /usr in every root: no
// distribution that is still made has them otherwise.
var merged = []string{"bin", "sbin", "lib"}

func newTree(w io.Writer, arch string) (*tree, error) {
	t := &tree{out: tar.NewWriter(w), nodes: map[string]node{"": {kind: tar.TypeDir}}}
	links := merged
	if arch == "amd64" || arch == "ppc64el" || arch == "s390x" || arch == "loong64" {
		links = append(links[:len(links):len(links)], "lib64")
	}
	for _, name := range links {
		if err := t.mkdir("usr/" + name); err != nil {
			return nil, err
		}
		if err := t.write(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: "usr/" + name, Mode: 0o777}, nil, ours); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// clean checks a name out of an archive and strips what starts it.
func clean(name string) (string, error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%w: a name that no file can have", errDeb)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: name %q leads out", errDeb, short(name))
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// place finds where a name is once links of the root are followed: those on the
// way to it, and with whole the one that it is itself. Links lead nowhere but to
// places below the root.
func (t *tree) place(name string, whole bool) (string, error) {
	at, rest, follows := "", name, 0
	for rest != "" {
		part, after, more := strings.Cut(rest, "/")
		rest = after
		switch part {
		case "", ".":
			continue
		case "..":
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, part)
		n, ok := t.nodes[next]
		if !ok || n.kind != tar.TypeSymlink || !more && !whole {
			if ok && n.kind != tar.TypeDir && more {
				return "", fmt.Errorf("%w: %q is below a file", errDeb, short(name))
			}
			at = next
			continue
		}
		if follows++; follows > maxFollow || len(rest)+len(n.link) > 2*maxPath {
			return "", fmt.Errorf("%w: %q is below too many links", errDeb, short(name))
		}
		if strings.HasPrefix(n.link, "/") {
			at = ""
		}
		if more {
			rest = n.link + "/" + rest
		} else {
			rest = n.link
		}
	}
	return at, nil
}

// mkdir makes a directory and those above it that are missing. The path is a
// place, so nothing of it is a link.
func (t *tree) mkdir(name string) error {
	if n, ok := t.nodes[name]; ok {
		if n.kind != tar.TypeDir {
			return fmt.Errorf("%w: %q is a file and a directory", errDeb, short(name))
		}
		return nil
	}
	return t.write(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, nil, ours)
}

// write puts an entry where its name says, with the directories that it needs.
func (t *tree) write(h tar.Header, data io.Reader, owner int) error {
	if len(t.nodes) >= maxNodes {
		return fmt.Errorf("%w: over %d files", errDeb, maxNodes)
	}
	if dir := path.Dir(h.Name); dir != "." {
		if err := t.mkdir(dir); err != nil {
			return err
		}
	}
	t.nodes[h.Name] = node{h.Typeflag, h.Linkname, owner}
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if err := t.out.WriteHeader(&h); err != nil {
		return err
	}
	if data == nil {
		return nil
	}
	_, err := io.Copy(t.out, data)
	return err
}

// put writes a file of ours, unless a package has one there.
func (t *tree) put(name string, mode int64, data string) error {
	at, err := t.place(name, true)
	if err != nil {
		return err
	}
	if _, taken := t.nodes[at]; taken {
		return nil
	}
	return t.write(tar.Header{Typeflag: tar.TypeReg, Name: at, Mode: mode, Size: int64(len(data))}, strings.NewReader(data), ours)
}
