package deb

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// records writes what dpkg and apt keep of the packages, and the little that
// both need to go on inside.
func (u *unpacker) records() error {
	packs := slices.Clone(u.packs)
	slices.SortFunc(packs, func(a, b pack) int { return cmp.Compare(a.Name, b.Name) })
	var status, auto strings.Builder
	interests := map[string][]string{}
	for i := range packs {
		p := &packs[i]
		u.now = p.Package
		if err := u.info(p); err != nil {
			return err
		}
		p.status(&status)
		if p.AutoSelected && !p.Essential {
			fmt.Fprintf(&auto, "Package: %s\nArchitecture: %s\nAuto-Installed: 1\n\n", p.Name, u.set.Arch)
		}
		p.triggers(interests)
	}
	u.now = nil
	files := map[string]string{
		"var/lib/dpkg/status":            status.String(),
		"var/lib/dpkg/available":         "",
		"var/lib/dpkg/diversions":        "",
		"var/lib/dpkg/statoverride":      "",
		"var/lib/dpkg/arch":              u.set.Arch + "\n",
		"var/lib/dpkg/info/format":       "1\n",
		"var/lib/dpkg/triggers/Lock":     "",
		"var/lib/dpkg/triggers/Unincorp": "",
		"var/lib/dpkg/lock":              "",
		"var/lib/apt/extended_states":    auto.String(),
		"etc/apt/sources.list":           u.set.Sources,
	}
	if u.set.Slim {
		files["etc/dpkg/dpkg.cfg.d/slim"] = slimConfig
	}
	for name, text := range u.keys() {
		files[name] = text
	}
	for name, lines := range interests {
		slices.Sort(lines)
		files["var/lib/dpkg/triggers/"+name] = strings.Join(slices.Compact(lines), "")
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := u.tree.put(name, 0o644, files[name]); err != nil {
			return err
		}
	}
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/parts", "var/lib/dpkg/alternatives", "var/lib/apt/lists", "var/cache/apt/archives"} {
		at, err := u.tree.place(dir, true)
		if err != nil {
			return err
		}
		if err := u.tree.mkdir(at); err != nil {
			return err
		}
	}
	return u.accounts()
}

// accounts are the users and groups that every root has: base-passwd makes them
// in a script that runs before it is unpacked.
func (u *unpacker) accounts() error {
	for _, p := range u.packs {
		if p.Name != "base-passwd" {
			continue
		}
		for _, f := range p.masters {
			if err := u.tree.put("etc/"+f.name, 0o644, string(f.data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// keys are the files by which apt inside checks signatures, but for those that a
// package of the set has.
func (u *unpacker) keys() map[string]string {
	files := map[string]string{}
	for name, data := range u.set.Keys {
		name = path.Base(name)
		if _, has := u.tree.nodes["usr/share/keyrings/"+name]; has {
			continue // with the package that brings apt's own links to it
		}
		if ext := path.Ext(name); ext != ".gpg" && ext != ".asc" {
			name += ".gpg"
		}
		files["etc/apt/trusted.gpg.d/"+name] = string(data)
	}
	return files
}

// recordName is how dpkg's files call a package.
func (p *pack) recordName() string {
	if p.MultiSame || p.para.get("Multi-Arch") == "same" {
		return p.Name + ":" + p.Arch
	}
	return p.Name
}

// info writes a package's files below info.
func (u *unpacker) info(p *pack) error {
	at := "var/lib/dpkg/info/" + p.recordName() + "."
	if err := u.tree.put(at+"list", 0o644, strings.Join(p.list, "\n")+"\n"); err != nil {
		return err
	}
	for _, f := range p.files {
		if err := u.tree.put(at+f.name, f.mode, string(f.data)); err != nil {
			return err
		}
	}
	return nil
}

// status writes a package's paragraph. One without a script to configure it is
// configured by being there, so it is recorded as installed: for most packages
// this saves what dpkg would spend on them.
func (p *pack) status(to *strings.Builder) {
	state := "unpacked"
	if p.file("postinst") == nil {
		state = "installed"
	}
	for i, f := range p.para {
		if strings.EqualFold(f.name, "Status") || strings.EqualFold(f.name, "Conffiles") {
			continue
		}
		fmt.Fprintf(to, "%s: %s\n", f.name, f.value)
		if i == 0 {
			fmt.Fprintf(to, "Status: install ok %s\n", state)
		}
	}
	var conffiles []string
	for name, sum := range p.hashes {
		conffiles = append(conffiles, " /"+name+" "+sum+"\n")
	}
	if slices.Sort(conffiles); len(conffiles) > 0 {
		fmt.Fprintf(to, "Conffiles:\n%s", strings.Join(conffiles, ""))
	}
	to.WriteString("\n")
}

// triggers adds which package wants to hear of what: lines of the files below
// triggers, by file name. Paths share the file File.
func (p *pack) triggers(to map[string][]string) {
	for line := range strings.Lines(string(p.file("triggers"))) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) != 2 || !strings.HasPrefix(f[0], "interest") {
			continue
		}
		who := p.recordName()
		if strings.HasSuffix(f[0], "-noawait") {
			who += "/noawait"
		}
		if strings.HasPrefix(f[1], "/") {
			to["File"] = append(to["File"], f[1]+" "+who+"\n")
		} else if packageName(strings.ToLower(f[1])) && f[1] != "File" && f[1] != "Lock" && f[1] != "Unincorp" {
			to[f[1]] = append(to[f[1]], who+"\n")
		}
	}
}
