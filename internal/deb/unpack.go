package deb

import (
	"archive/tar"
	"bytes"
	"crypto/md5" // as dpkg records conffiles by it; nothing rests on it
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// WriteTar writes the root that a set makes: every package unpacked as dpkg
// would leave it, with dpkg's records, and none of its scripts run. debs are the
// set's packages, in its order. The tar has each path once and each directory
// before what is in it; hard links come after what they link to.
//
// It reads debs and writes w, and touches nothing else. A package that is not
// one, that leads out of the root or that has a file of another's is an error;
// w is of no use then.
func WriteTar(set Set, debs []io.ReaderAt, w io.Writer) error {
	if len(debs) != len(set.Packages) {
		return fmt.Errorf("%d packages and %d files", len(set.Packages), len(debs))
	}
	u := &unpacker{set: set, debs: debs}
	var wrong *writeError
	switch err := u.run(&errorWriter{w}); {
	case errors.As(err, &wrong):
		return wrong.error
	case err != nil && u.now != nil:
		return invalid("it is as its archive has it; leave it out, or tell its maintainer", "package %s %s: %v", u.now.Name, u.now.Version, err)
	default:
		return err
	}
}

// An unpacker writes one root.
type unpacker struct {
	set   Set
	debs  []io.ReaderAt
	packs []pack
	tree  *tree
	now   *Package // what is being worked on
}

// A pack is a package of the set, opened.
type pack struct {
	*Package
	maintainer
	para     paragraph
	replaces []alternatives
	data     member
	list     []string          // its paths, for dpkg
	hashes   map[string]string // of its conffiles, MD5
	masters  []infoFile        // base-passwd's lists of accounts: passwd and group
}

func (u *unpacker) run(w io.Writer) error {
	for i := range u.set.Packages {
		p := &u.set.Packages[i]
		u.now = p
		one, err := openPack(p, u.debs[i], u.set.Arch)
		if err != nil {
			return err
		}
		u.packs = append(u.packs, one)
	}
	u.now = nil
	u.sortByReplaces()
	var err error
	if u.tree, err = newTree(w, u.set.Arch); err != nil {
		return err
	}
	members := make([]member, len(u.packs))
	for i := range u.packs {
		members[i] = u.packs[i].data
	}
	files := newAhead(members)
	defer files.close()
	for i := range u.packs {
		u.now = u.packs[i].Package
		if err := u.unpack(i, files.reader()); err != nil {
			return err
		}
	}
	u.now = nil
	if err := u.records(); err != nil {
		return err
	}
	return u.tree.out.Close()
}

// openPack reads what describes a package, and compares it with the index.
func openPack(p *Package, r io.ReaderAt, arch string) (pack, error) {
	control, data, err := openDeb(r, p.Size)
	if err != nil {
		return pack{}, err
	}
	one := pack{Package: p, data: data, hashes: map[string]string{}}
	if one.maintainer, err = readControl(control); err != nil {
		return pack{}, err
	}
	first, _ := cutParagraph(one.control)
	if one.para, err = parseParagraph(first); err != nil {
		return pack{}, err
	}
	if one.para.get("Package") != p.Name || one.para.get("Version") != p.Version || one.para.get("Architecture") != p.Arch {
		return pack{}, fmt.Errorf("%w: it says it is %s %s", errDeb, short(one.para.get("Package")), short(one.para.get("Version")))
	}
	one.replaces, err = parseRelations(one.para.get("Replaces"), arch)
	return one, err
}

// sortByReplaces puts a package before those whose files it takes over, so that
// no file is written twice.
func (u *unpacker) sortByReplaces() {
	var order []pack
	seen := make([]bool, len(u.packs))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for j := range u.packs {
			if j != i && u.packs[j].takesFrom(u.packs[i]) {
				visit(j)
			}
		}
		order = append(order, u.packs[i])
	}
	for i := range u.packs {
		visit(i)
	}
	u.packs = order
}

// takesFrom says whether p may have files that are another's too.
func (p pack) takesFrom(other pack) bool {
	return slices.ContainsFunc(p.replaces, func(a alternatives) bool {
		return a[0].name == other.Name && a[0].admits(other.Version)
	})
}

// unpack writes the files of a package.
func (u *unpacker) unpack(i int, from io.Reader) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := u.entry(i, h, in); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, from) // the checksum is at the end
	return err
}

// entry writes one entry of a package, or finds that it is there.
func (u *unpacker) entry(i int, h *tar.Header, data io.Reader) error {
	p := &u.packs[i]
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	listed := "/" + name
	if name == "" {
		listed = "/."
	}
	if u.set.Slim && slim(name, h.Typeflag) {
		return nil
	}
	at, err := u.tree.place(name, h.Typeflag == tar.TypeDir)
	if err != nil {
		return err
	}
	old, exists := u.tree.nodes[at]
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse") {
			return fmt.Errorf("%w: %q has holes", errDeb, short(name)) // no package has, and a hole costs nothing to claim
		}
	}
	out := tar.Header{
		Typeflag: h.Typeflag, Name: at, Mode: h.Mode & 0o7777,
		Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, Format: tar.FormatUnknown,
	}
	switch h.Typeflag {
	case tar.TypeDir:
		p.list = append(p.list, listed)
		if exists {
			return u.tree.mkdir(at) // it is as who came first has it, as with dpkg
		}
		return u.tree.write(out, nil, ours)
	case tar.TypeSymlink:
		if len(h.Linkname) > maxPath || h.Linkname == "" {
			return fmt.Errorf("%w: link %q leads nowhere", errDeb, short(name))
		}
		if exists && (old.kind == tar.TypeDir || old.kind == tar.TypeSymlink && old.owner == ours && old.link == h.Linkname) {
			p.list = append(p.list, listed)
			return nil // a directory stays one, and our own links are the packages'
		}
		out.Linkname = h.Linkname
	case tar.TypeLink:
		target, err := clean(h.Linkname)
		if err != nil {
			return err
		}
		if target, err = u.tree.place(target, false); err != nil {
			return err
		}
		if n, ok := u.tree.nodes[target]; !ok || n.kind != tar.TypeReg || n.owner != i {
			return fmt.Errorf("%w: %q is a link to %q, which is no file of it", errDeb, short(name), short(target))
		}
		out.Linkname = target
	case tar.TypeReg:
		out.Size = h.Size
	default:
		return fmt.Errorf("%w: %q is neither file, directory nor link", errDeb, short(name))
	}
	if exists {
		skip, err := u.collide(p, i, name, old)
		if skip || err != nil {
			return err
		}
	}
	p.list = append(p.list, listed)
	if out.Typeflag != tar.TypeReg {
		return u.writeFile(out, nil, i)
	}
	if kind, ok := strings.CutPrefix(name, "usr/share/base-passwd/"); ok && (kind == "passwd.master" || kind == "group.master") && h.Size < maxRelease {
		var text bytes.Buffer
		err := u.writeFile(out, io.TeeReader(data, &text), i)
		p.masters = append(p.masters, infoFile{name: strings.TrimSuffix(kind, ".master"), data: text.Bytes()})
		return err
	}
	if !p.conffiles[name] {
		return u.writeFile(out, data, i)
	}
	sum := md5.New()
	err = u.writeFile(out, io.TeeReader(data, sum), i)
	p.hashes[name] = hexOf(sum.Sum(nil))
	return err
}

// writeFile writes what is no directory. A hard link counts as a file, so that
// others may link to it.
func (u *unpacker) writeFile(h tar.Header, data io.Reader, owner int) error {
	if err := u.tree.write(h, data, owner); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		u.tree.nodes[h.Name] = node{kind: tar.TypeReg, owner: owner}
	}
	return nil
}

// collide says whether an entry is left out since the package that has the path
// took it over.
func (u *unpacker) collide(p *pack, i int, name string, old node) (skip bool, err error) {
	switch {
	case old.kind == tar.TypeDir:
		return false, fmt.Errorf("%w: %q is a directory of others", errDeb, short(name))
	case old.owner == i || old.owner == ours:
		return false, fmt.Errorf("%w: %q is there twice", errDeb, short(name))
	case u.packs[old.owner].takesFrom(*p):
		return true, nil
	}
	return false, fmt.Errorf("%w: %q is in package %s too, and it does not replace that", errDeb, short(name), u.packs[old.owner].Name)
}

// slim says what small roots do without: what distributions leave out of their
// small container images. Directories and copyright files stay.
func slim(name string, kind byte) bool {
	share, ok := strings.CutPrefix(name, "usr/share/")
	if !ok || kind == tar.TypeDir && !strings.HasPrefix(share, "doc/") && !strings.HasPrefix(share, "locale/") {
		return false
	}
	dir, rest, _ := strings.Cut(share, "/")
	switch dir {
	case "doc":
		return rest != "" && path.Base(name) != "copyright" && !(kind == tar.TypeSymlink && !strings.Contains(rest, "/"))
	case "locale":
		return rest != "" && rest != "locale.alias"
	case "man", "info", "groff", "lintian", "linda":
		return rest != ""
	}
	return false
}

// slimConfig tells dpkg inside to leave out the same.
const slimConfig = `path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/groff/*
path-exclude /usr/share/lintian/*
path-exclude /usr/share/linda/*
path-exclude /usr/share/locale/*
path-include /usr/share/locale/locale.alias
`

// An errorWriter marks what its writer says, to tell it from what packages are.
type errorWriter struct{ io.Writer }

type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func (w *errorWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = &writeError{err}
	}
	return n, err
}
