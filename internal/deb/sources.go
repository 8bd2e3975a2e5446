package deb

import (
	"bufio"
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A source is one suite of one mirror.
type source struct {
	uri        string // ends without a slash, holds no credentials
	suite      string
	components []string
	signedBy   []string // paths, fingerprints or one armoured block; none: the host's trusted keys
	archs      []string // none: all
}

const sourcesHint = "say where packages come from: --mirror URL --suite NAME --keyring FILE"

// hostSources reads the apt sources below etc (/etc): those of the distribution
// itself, for its own suite or, if suite is not "", for that one. What somebody
// else's repository offers is left out: names alone would not say from whom a
// package comes.
func hostSources(etc, suite string) ([]source, error) {
	var all []source
	for _, file := range sourceFiles(etc) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // gone, or not for us; what is missing is said below
		}
		if strings.HasSuffix(file, ".sources") {
			all = append(all, parseSources822(data)...)
		} else {
			all = append(all, parseSourcesLines(data)...)
		}
	}
	base := baseSuite(etc, all)
	var list []source
	for _, s := range all {
		rest, ok := strings.CutPrefix(s.suite, base)
		if base == "" || !ok || !slices.Contains([]string{"", "-updates", "-security", "/updates"}, rest) {
			continue
		}
		if suite != "" {
			if rest == "/updates" {
				rest = "-security"
			}
			s.suite = suite + rest
		}
		if s.uri = mirrorOf(s.uri); s.uri != "" {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil, invalid(sourcesHint, "this host has no apt sources of a Debian or Ubuntu suite over http or https")
	}
	return list, nil
}

func sourceFiles(etc string) []string {
	files := []string{filepath.Join(etc, "apt/sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		more, _ := filepath.Glob(filepath.Join(etc, "apt/sources.list.d", pattern)) // the pattern is fine
		files = append(files, more...)
	}
	return files
}

// baseSuite is the suite that the host itself is of.
func baseSuite(etc string, all []source) string {
	names := map[string]string{}
	if data, err := os.ReadFile(filepath.Join(etc, "os-release")); err == nil {
		for line := range strings.Lines(string(data)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			names[k] = strings.Trim(v, `"'`)
		}
	}
	has := func(suite string) bool {
		return suite != "" && slices.ContainsFunc(all, func(s source) bool { return s.suite == suite })
	}
	for _, key := range []string{"UBUNTU_CODENAME", "DEBIAN_CODENAME", "VERSION_CODENAME"} {
		if has(names[key]) {
			return names[key]
		}
	}
	for _, alias := range []string{"stable", "oldstable", "testing", "unstable", "sid"} {
		if has(alias) {
			return alias
		}
	}
	return ""
}

// mirrorOf turns a URI of a sources file into a plain mirror, "" if it is none.
func mirrorOf(uri string) string {
	if list, ok := strings.CutPrefix(uri, "mirror+file:"); ok {
		data, err := os.ReadFile(list)
		if err != nil {
			return ""
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 0 && mirrorOf(f[0]) != "" {
				return mirrorOf(f[0])
			}
		}
		return ""
	}
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return ""
	}
	return strings.TrimRight(u.String(), "/")
}

// parseSourcesLines reads the old form: deb [options] uri suite components.
// Lines that say nothing of binary packages are left out.
func parseSourcesLines(data []byte) []source {
	var list []source
	for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || line == "" || line[0] != ' ' && line[0] != '\t' {
			continue
		}
		line = strings.TrimSpace(line)
		var s source
		if strings.HasPrefix(line, "[") {
			options, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				continue
			}
			line = rest
			for _, option := range strings.Fields(options) {
				switch k, v, _ := strings.Cut(option, "="); strings.ToLower(k) {
				case "signed-by":
					s.signedBy = splitList(v)
				case "arch":
					s.archs = splitList(v)
				}
			}
		}
		if f := strings.Fields(line); len(f) >= 3 && !strings.HasSuffix(f[1], "/") {
			s.uri, s.suite, s.components = f[0], f[1], f[2:]
			list = append(list, s)
		}
	}
	return list
}

// parseSources822 reads the form of fields, where one paragraph is all
// combinations of its URIs and suites.
func parseSources822(data []byte) []source {
	var list []source
	for {
		var one []byte
		one, data = cutParagraph(data)
		if len(one) == 0 {
			return list
		}
		p, err := parseParagraph(one)
		if err != nil || strings.EqualFold(p.get("Enabled"), "no") || !slices.Contains(strings.Fields(p.get("Types")), "deb") {
			continue
		}
		signedBy := splitList(p.get("Signed-By"))
		if key := p.get("Signed-By"); strings.Contains(key, armorHead) {
			signedBy = []string{unindent(key)}
		}
		for _, uri := range strings.Fields(p.get("URIs")) {
			for _, suite := range strings.Fields(p.get("Suites")) {
				if !strings.HasSuffix(suite, "/") {
					list = append(list, source{
						uri: uri, suite: suite, components: strings.Fields(p.get("Components")),
						signedBy: signedBy, archs: strings.Fields(p.get("Architectures")),
					})
				}
			}
		}
	}
}

const armorHead = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

// unindent undoes how a text of lines is written in a field: each with a blank
// before it, and a dot where a line is empty.
func unindent(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "." {
			line = ""
		}
		lines = append(lines, line)
	}
	return strings.TrimSpace(strings.Join(lines, "\n")) + "\n"
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}

// namedSources are what a caller names. A suite may be several, with commas.
func namedSources(opt Options) ([]source, error) {
	mirror := mirrorOf(opt.Mirror)
	switch {
	case mirror == "":
		return nil, invalid(sourcesHint, "mirror %q is not an http or https URL", short(opt.Mirror))
	case opt.Suite == "" || opt.Keyring == "":
		return nil, invalid(sourcesHint, "a mirror needs a suite, and the keyring that signs it")
	}
	var list []source
	for _, suite := range splitList(opt.Suite) {
		list = append(list, source{uri: mirror, suite: suite, components: opt.Components, signedBy: []string{opt.Keyring}})
	}
	return list, nil
}

// validSuite keeps a suite from being anything but a directory below dists.
func validSuite(s string) bool {
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || !validVersion(part) {
			return false
		}
	}
	return true
}

// hostArch is this host's architecture as dpkg names it.
func hostArch() string {
	switch runtime.GOARCH {
	case "arm":
		return "armhf"
	case "386":
		return "i386"
	case "ppc64le":
		return "ppc64el"
	}
	return runtime.GOARCH
}

// user is the URL of a source that has credentials in it, else nil.
func (s source) user() *url.URL {
	if u, err := url.Parse(s.uri); err == nil && u.User != nil {
		return u
	}
	return nil
}
