package image

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// fakeHost makes a host out of a table: path to content; "->" starts a symlink,
// "!" before the content makes a file of mode 0600.
func fakeHost(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for p, content := range files {
		at := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case strings.HasPrefix(content, "->"):
			err = os.Symlink(content[2:], at)
		case strings.HasPrefix(content, "!"):
			err = os.WriteFile(at, []byte(content[1:]), 0o600)
		default:
			err = os.WriteFile(at, []byte(content), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var smallHost = map[string]string{
	"/bin":                                       "->usr/bin",
	"/usr/bin/bash":                              "bash",
	"/usr/bin/sh":                                "->bash",
	"/usr/bin/awk":                               "->/etc/alternatives/awk",
	"/etc/alternatives/awk":                      "->/usr/bin/mawk",
	"/etc/alternatives/other":                    "->/usr/bin/other",
	"/usr/bin/mawk":                              "mawk",
	"/usr/bin/python3":                           "->python3.11",
	"/usr/bin/python3.11":                        "python",
	"/usr/local/bin/python3":                     "->/root/.shims/python3",
	"/root/.shims/python3":                       "shim",
	"/usr/local/bin/git":                         "#!/root/.shims/python3\n",
	"/usr/bin/git":                               "#!/usr/bin/env sh\n",
	"/usr/bin/env":                               "env",
	"/usr/bin/unknown-tool":                      "not in the list",
	"/usr/bin/sudo":                              "sudo",
	"/usr/lib/python3/dist-packages/x.py":        "module",
	"/usr/lib/python3/dist-packages/key.py":      "!secret",
	"/usr/lib/python3/dist-packages/home":        "->/home/u/lib",
	"/usr/lib/python3/dist-packages/js":          "->/usr/share/javascript/jq",
	"/usr/share/javascript/jq/jq.js":             "js",
	"/home/u/lib":                                "private",
	"/etc/ssl/certs/ca.pem":                      "ca",
	"/etc/ssl/certs/local.pem":                   "->/usr/local/share/ca-certificates/local.crt",
	"/usr/local/share/ca-certificates/local.crt": "local ca",
	"/etc/ssl/private/key":                       "key",
	"/etc/passwd":                                "somebody:x:1:1::/:/bin/sh\n",
	"/etc/shadow":                                "!somebody:hash",
	"/etc/os-release":                            "->../usr/lib/os-release",
	"/usr/lib/os-release":                        "ID=fake\n",
	"/usr/local/go/bin/go":                       "go",
	"/usr/local/go/src/a/a.go":                   "a",
	"/usr/local/go/src/a/a_test.go":              "test",
	"/usr/local/go/src/a/testdata/big":           "data",
	"/usr/include/stdio.h":                       "h",
	"/usr/include/other/big.h":                   strings.Repeat("h", 1<<20),
	"/opt/x/bin/tool":                            "tool",
	"/opt/x/out":                                 "->/root/.shims/python3",
	"/opt/y":                                     "->/opt/x",
	"/var/lib/dpkg/status":                       "status",
}

func TestHostTemplate(t *testing.T) {
	root := fakeHost(t, smallHost)
	if err := os.Chmod(filepath.Join(root, "usr/bin/mawk"), 0o777|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	s := Open(filepath.Join(t.TempDir(), "store"))
	img, err := s.Resolve(t.Context(), "", Options{HostRoot: root, Include: []string{"/opt/x"}, Exclude: []string{"/usr/bin/env"}})
	if err != nil {
		t.Fatal(err)
	}
	got := readImage(t, img.Path, 1<<21)
	for p, want := range map[string]string{
		"/bin": "->usr/bin", "/usr/bin/bash": "bash", "/usr/bin/awk": "->/etc/alternatives/awk",
		"/etc/alternatives/awk": "->/usr/bin/mawk", "/usr/bin/mawk": "mawk", "/usr/bin/python3": "->python3.11",
		"/usr/bin/python3.11": "python", "/usr/lib/python3/dist-packages/x.py": "module",
		"/usr/lib/python3/dist-packages/home": "->/home/u/lib", "/usr/share/javascript/jq/jq.js": "js",
		"/etc/ssl/certs/local.pem":                   "->/usr/local/share/ca-certificates/local.crt",
		"/usr/local/share/ca-certificates/local.crt": "local ca", "/usr/lib/os-release": "ID=fake\n",
		"/etc/os-release": "->../usr/lib/os-release", "/usr/local/go/src/a/a.go": "a", "/usr/include/stdio.h": "h",
		"/opt/x/bin/tool": "tool", "/opt/x/out": "->/root/.shims/python3", "/etc/resolv.conf": "",
		"/etc/hosts": hostsFile, "/etc/shells": "/bin/sh\n/bin/bash\n",
	} {
		n, ok := got[p]
		if have := string(n.content); !ok || have != want && "->"+n.target != want {
			t.Errorf("%s is %q %q, want %q", p, have, n.target, want)
		}
	}
	for _, p := range []string{
		"/usr/local/bin/python3", "/usr/local/bin/git", "/usr/bin/git", "/usr/bin/env", "/usr/bin/unknown-tool", "/usr/bin/sudo",
		"/usr/lib/python3/dist-packages/key.py", "/home/u", "/root/.shims", "/etc/ssl/private", "/etc/shadow",
		"/etc/alternatives/other", "/usr/local/go/src/a/a_test.go", "/usr/local/go/src/a/testdata", "/var/lib/dpkg",
	} {
		if _, ok := got[p]; ok {
			t.Errorf("%s is in the image", p)
		}
	}
	if pw := string(got["/etc/passwd"].content); strings.Contains(pw, "somebody") || !strings.Contains(pw, "agent:x:1000:1000:agent:/home/agent:/bin/bash") {
		t.Errorf("passwd: %q", pw)
	}
	for p, n := range got {
		free := n.mode&typeMask == typeLink || p == "/tmp" || p == "/var/tmp"
		id := uint32(0)
		if p == "/workspace" || p == "/home/agent" {
			id = agentID
		}
		if !free && n.mode&0o7022 != 0 || n.uid != id || n.gid != id {
			t.Errorf("%s: mode %o, owner %d:%d", p, n.mode, n.uid, n.gid)
		}
	}
}

func TestHostOptionalGroups(t *testing.T) {
	opt := Options{HostRoot: fakeHost(t, smallHost), MaxBytes: 1 << 20}
	s := Open(t.TempDir())
	img, err := s.Resolve(t.Context(), Host, opt)
	if err != nil {
		t.Fatal(err)
	}
	man, err := s.Manifest(img.Name)
	if err != nil || !slices.Equal(man.LeftOut, []string{"dev"}) || !slices.Equal(img.LeftOut, man.LeftOut) {
		t.Errorf("left out %v, manifest %+v, %v", img.LeftOut, man, err)
	}
	got := readImage(t, img.Path, 100)
	if _, ok := got["/usr/include/other"]; ok {
		t.Error("the group is in the image")
	}
	if _, ok := got["/usr/include/stdio.h"]; !ok {
		t.Error("what an earlier group took went with it")
	}
	if img, err = s.Resolve(t.Context(), Host, opt); err != nil || img.Built || len(img.LeftOut) != 1 {
		t.Errorf("again: %+v, %v", img, err)
	}
}

// The toolchain that rustup has as its default is in the image, at a place that
// is nobody's, and nothing else of the home that it is in.
func TestHostRust(t *testing.T) {
	const tc = "/root/.rustup/toolchains/stable-x86_64-unknown-linux-gnu/"
	files := map[string]string{
		"/usr/bin/sh": "sh", "/root/.rustup/settings.toml": "version = \"12\"\ndefault_toolchain = \"stable-x86_64-unknown-linux-gnu\"\n",
		tc + "bin/cargo": "cargo", tc + "bin/rustc": "rustc", tc + "bin/clippy-driver": "clippy", tc + "lib/librustc_driver-1.so": "driver",
		tc + "lib/rustlib/x86_64-unknown-linux-gnu/lib/libstd-1.rlib": "std", tc + "lib/rustlib/x86_64-unknown-linux-gnu/lib/librustc-stable_rt.asan.a": "rt",
		tc + "share/doc/index.html": "doc", tc + "lib/secret.so": "!secret", tc + "lib/out.so": "->/root/.cargo/credentials.toml",
		"/root/.cargo/credentials.toml": "token", "/root/.cargo/bin/cargo": "rustup",
		"/root/.rustup/toolchains/nightly-x86_64-unknown-linux-gnu/bin/cargo": "another",
	}
	for _, tt := range []struct {
		name   string
		change map[string]string
		homes  []string
		want   string // of cargo; "": none is in
	}{
		{"default", nil, []string{"/nowhere", "/root/.rustup"}, "cargo"},
		{"nobody says where", nil, nil, ""},
		{"a short name", map[string]string{"/root/.rustup/settings.toml": "default_toolchain = \"nightly\"\n"}, []string{"/root/.rustup"}, "another"},
		{"a name that is none", map[string]string{"/root/.rustup/settings.toml": "default_toolchain = \"../../.cargo\"\n"}, []string{"/root/.rustup"}, ""},
		{"its second name", map[string]string{"/root/.rustup/settings.toml": "default_toolchain = \"same\"\n", "/root/.rustup/toolchains/same": "->" + strings.TrimSuffix(tc, "/")},
			[]string{"/root/.rustup"}, "cargo"},
		{"a build of one's own", map[string]string{"/root/.rustup/settings.toml": "default_toolchain = \"mine\"\n", "/root/.rustup/toolchains/mine": "->/root/src",
			"/root/src/bin/cargo": "mine"}, []string{"/root/.rustup"}, ""},
		{"the host's own", map[string]string{"/usr/bin/cargo": "distribution"}, []string{"/root/.rustup"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := maps.Clone(files)
			maps.Copy(host, tt.change)
			opt := Options{HostRoot: fakeHost(t, host), Rustup: tt.homes}
			img, err := Open(t.TempDir()).Resolve(t.Context(), Host, opt)
			if err != nil {
				t.Fatal(err)
			}
			got := readImage(t, img.Path, 1<<20)
			if have := string(got["/usr/local/lib/rust/bin/cargo"].content); have != tt.want || (got["/usr/local/bin/cargo"].target == "../lib/rust/bin/cargo") != (tt.want != "") {
				t.Errorf("cargo is %q, and in the path %q", have, got["/usr/local/bin/cargo"].target)
			}
			if _, ok := got["/usr/local/lib/rust/lib/rustlib/x86_64-unknown-linux-gnu/lib/libstd-1.rlib"]; ok != (tt.want == "cargo") {
				t.Errorf("the standard library: %t", ok)
			}
			for p, n := range got {
				if strings.HasPrefix(p, "/root/") || strings.Contains(p, "secret") || strings.Contains(p, "out.so") || strings.Contains(p, "_rt.") || strings.Contains(p, "doc") ||
					slices.Contains([]string{"token", "clippy", "mine", "secret"}, string(n.content)) {
					t.Errorf("%s is in the image", p)
				}
			}
			before, _ := hostKey(opt)
			os.Chtimes(filepath.Join(opt.HostRoot, tc, "lib/rustlib"), time.Time{}, time.Now().Add(time.Hour))
			if after, _ := hostKey(opt); (after != before) != (tt.name == "default" || tt.name == "its second name" || tt.name == "the host's own") {
				t.Errorf("another version: %s, %s", before, after)
			}
		})
	}
}

func TestHostTooLarge(t *testing.T) {
	files := map[string]string{"/usr/lib/python3/dist-packages/torch/big.so": strings.Repeat("x", 3<<20), "/usr/bin/sh": "sh"}
	_, err := Open(t.TempDir()).Resolve(t.Context(), Host, Options{HostRoot: fakeHost(t, files), MaxBytes: 1 << 20})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeTemplateTooLarge ||
		!strings.Contains(e.Message, "/usr/lib/python3") || !strings.Contains(e.Hint, "--template-exclude /usr/lib/python3") {
		t.Errorf("got %+v", err)
	}
}

func TestHostFingerprint(t *testing.T) {
	root := fakeHost(t, smallHost)
	opt := Options{HostRoot: root, Include: []string{"/opt/x"}}
	s := Open(t.TempDir())
	resolve := func(what string, built bool) {
		t.Helper()
		img, err := s.Resolve(t.Context(), Host, opt)
		if err != nil || img.Built != built {
			t.Errorf("%s: built %v, %v; want %v", what, img.Built, err, built)
		}
	}
	write := func(p, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, p), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	resolve("first", true)
	resolve("second", false)
	write("var/lib/dpkg/status", "one more package")
	resolve("after a package", true)
	resolve("again", false)
	write("opt/x/bin/tool", "another")
	resolve("after an included file", true)
	write("usr/bin/jq", "new")
	resolve("after a new program", true)
	resolve("at last", false)
}

func TestHostIncludeRefused(t *testing.T) {
	opt := Options{HostRoot: fakeHost(t, smallHost)}
	for path, code := range map[string]string{
		"/opt/y": api.CodeTemplateNotFound, "/opt/none": api.CodeTemplateNotFound, "/": api.CodeTemplateInvalid,
		"/proc/1": api.CodeTemplateInvalid, "opt/x": api.CodeTemplateInvalid, "/opt/../root": api.CodeTemplateInvalid,
	} {
		opt.Include = []string{path}
		_, err := Open(t.TempDir()).Resolve(t.Context(), Host, opt)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("include %s: %v, want %s", path, err, code)
		}
	}
}
