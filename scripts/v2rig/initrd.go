package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// needed are the modules that the root disk takes; what they depend on comes
// along, and what a kernel has built in is not missed.
var needed = []string{"virtio_pci", "virtio_blk", "virtio_console", "virtio_rng", "ext4", "erofs", "overlay"}

// initrd packs modules, a static busybox and an init into a cpio archive.
func initrd(args []string) error {
	fs := flag.NewFlagSet("initrd", flag.ExitOnError)
	modules := fs.String("modules", "", "lib/modules/VERSION of the `tree` of the kernel's package")
	busybox := fs.String("busybox", "", "a static busybox")
	initFile := fs.String("init", "", "the program to start first")
	more := fs.String("load", "", "more modules, by name, with commas")
	out := fs.String("out", "", "the archive to write")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	a := &archive{w: z}
	for _, d := range []string{"bin", "dev", "proc", "sys", "root", "modules"} {
		a.add(d, 0o040755, nil)
	}
	for _, f := range []struct{ name, from string }{{"bin/busybox", *busybox}, {"init", *initFile}} {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		a.add(f.name, 0o100755, content)
	}
	a.add("bin/sh", 0o120777, []byte("busybox"))
	want := needed
	if *more != "" {
		want = slices.Concat(needed, strings.Split(*more, ","))
	}
	order, err := closure(*modules, want)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, path := range order {
		content, err := module(filepath.Join(*modules, path))
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".xz"), ".zst")
		a.add("modules/"+name, 0o100644, content)
		fmt.Fprintln(&list, name)
	}
	a.add("modules/order", 0o100644, []byte(list.String()))
	a.add("TRAILER!!!", 0, nil)
	if err := errors.Join(a.err, z.Close()); err != nil {
		return err
	}
	return os.WriteFile(*out, b.Bytes(), 0o644)
}

// closure is the order in which to load the modules that want names.
func closure(tree string, want []string) (order []string, err error) {
	deps, err := dependencies(tree)
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for path := range deps {
		name, _, _ := strings.Cut(filepath.Base(path), ".ko")
		byName[strings.ReplaceAll(name, "-", "_")] = path
	}
	var visit func(string)
	visit = func(path string) {
		if slices.Contains(order, path) {
			return
		}
		for _, d := range deps[path] {
			visit(d)
		}
		if !slices.Contains(order, path) {
			order = append(order, path)
		}
	}
	for _, name := range want {
		if path, ok := byName[strings.ReplaceAll(name, "-", "_")]; ok {
			visit(path)
		}
	}
	return order, nil
}

// dependencies says of each module, by path below tree, what it needs. A package
// that was only unpacked has no modules.dep, so it is made by depmod if there is
// one, and else read from the modules themselves.
func dependencies(tree string) (map[string][]string, error) {
	deps, names := map[string][]string{}, map[string]string{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := d.Name(); strings.Contains(base, ".ko") && d.Type().IsRegular() {
			rel, _ := filepath.Rel(tree, path)
			name, _, _ := strings.Cut(base, ".ko")
			names[strings.ReplaceAll(name, "-", "_")] = rel
			deps[rel] = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(deps) == 0 {
		return nil, fmt.Errorf("no modules below %s", tree)
	}
	var fill func(string) error
	fill = func(path string) error {
		if deps[path] != nil {
			return nil
		}
		deps[path] = []string{}
		content, err := module(filepath.Join(tree, path))
		if err != nil {
			return err
		}
		for _, name := range info(content, "depends") {
			dep, ok := names[strings.ReplaceAll(name, "-", "_")]
			if !ok {
				continue // built in
			}
			deps[path] = append(deps[path], dep)
			if err := fill(dep); err != nil {
				return err
			}
		}
		return nil
	}
	// Only what is asked for is opened: there are hundreds of them.
	for _, name := range append(needed, "kvm_amd", "kvm_intel", "crc32c_generic") {
		if path, ok := names[name]; ok {
			if err := fill(path); err != nil {
				return nil, err
			}
		}
	}
	return deps, nil
}

// info is a list in the .modinfo section of a module: "key=a,b".
func info(content []byte, key string) []string {
	_, rest, ok := bytes.Cut(content, []byte("\x00"+key+"="))
	if !ok {
		return nil
	}
	val, _, _ := bytes.Cut(rest, []byte{0})
	if len(val) == 0 {
		return nil
	}
	return strings.Split(string(val), ",")
}

// module reads a module, unpacked.
func module(path string) ([]byte, error) {
	for suffix, tool := range map[string]string{".xz": "xz", ".zst": "zstd"} {
		if strings.HasSuffix(path, suffix) {
			out, err := exec.Command(tool, "-dc", path).Output()
			if err != nil {
				return nil, fmt.Errorf("%s -dc %s: %w", tool, path, err)
			}
			return out, nil
		}
	}
	return os.ReadFile(path)
}

// archive writes the "new ASCII" cpio format.
type archive struct {
	w   io.Writer
	ino int
	err error
}

func (a *archive) add(name string, mode uint32, content []byte) {
	if a.err != nil {
		return
	}
	a.ino++
	w := bufio.NewWriter(a.w)
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	pad := func(n int) { w.WriteString("\x00\x00\x00"[:(4-n%4)%4]) }
	w.WriteString(head + name + "\x00")
	pad(len(head) + len(name) + 1)
	w.Write(content)
	pad(len(content))
	a.err = w.Flush()
}
