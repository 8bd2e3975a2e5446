package deb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostArchive opens what apt on this host would use, once for all tests.
func hostArchive(t *testing.T) *Archive {
	t.Helper()
	if os.Getenv("BERM_TEST_MIRROR") == "" {
		t.Skip("reads this host's mirror: set BERM_TEST_MIRROR=1")
	}
	cache := os.Getenv("BERM_TEST_DEBS") // kept between runs, if set
	if cache == "" {
		cache = t.TempDir()
	}
	a, err := Open(context.Background(), Options{Cache: cache})
	if err != nil {
		t.Skipf("no archive: %v", err)
	}
	return a
}

// TestAgainstApt: in an empty root, apt comes to the same packages and versions.
func TestAgainstApt(t *testing.T) {
	a := hostArchive(t)
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("no apt-get to compare with")
	}
	root := t.TempDir()
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"sources.list": a.sourcesList(), "status": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apt := func(args ...string) string {
		options := []string{"-qq"}
		for _, o := range []string{
			"Dir::Etc::sourcelist=" + root + "/sources.list", "Dir::Etc::sourceparts=/dev/null", "Dir::Etc::preferencesparts=/dev/null",
			"Dir::State=" + root + "/state", "Dir::State::status=" + root + "/status", "Dir::Cache=" + root + "/cache",
			"APT::Install-Recommends=false", "APT::Sandbox::User=root", "APT::Update::Post-Invoke-Success=", "Acquire::Languages=none",
			"DPkg::Post-Invoke=", "APT::Get::AllowUnauthenticated=false",
		} {
			options = append(options, "-o", o)
		}
		cmd := exec.Command("apt-get", append(options, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("apt-get %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	apt("update")
	for _, names := range []string{
		"", "python3", "python3-matplotlib", "python3-pandas", "nodejs", "npm", "git", "build-essential", "chromium",
		"default-jdk-headless", "ffmpeg", "imagemagick", "golang", "rustc cargo", "postgresql", "nginx", "php", "ruby-full",
		"r-base-core", "texlive-latex-base", "libreoffice-calc", "sqlite3 curl wget jq", "openssh-server", "emacs-nox vim",
		"python3-venv python3-pip", "gcc-arm-none-eabi", "maven", "ghc", "octave", "xvfb x11-apps", "mariadb-server",
		"python3 python3-numpy python3-pandas python3-matplotlib nodejs npm git build-essential", "systemd-sysv", "clang cmake ninja-build",
		"task-xfce-desktop", "exim4", "default-mta", "docker.io", "qemu-system-x86", "mailutils", "firefox-esr",
	} {
		t.Run(names, func(t *testing.T) {
			set, err := a.Resolve(strings.Fields(names))
			if err != nil {
				t.Fatal(err)
			}
			ask := []string{"install", "-s"}
			for _, p := range set.Packages {
				if !p.AutoSelected || p.Essential || slices.Contains(base, p.Name) {
					ask = append(ask, p.Name)
				}
			}
			var ours, theirs []string
			for _, p := range set.Packages {
				ours = append(ours, p.Name+" "+p.Version)
			}
			for line := range strings.Lines(apt(ask...)) {
				if f := strings.Fields(line); len(f) > 2 && f[0] == "Inst" {
					theirs = append(theirs, f[1]+" "+strings.TrimPrefix(f[2], "("))
				}
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			only := func(a, b []string) (d []string) {
				for _, s := range a {
					if !slices.Contains(b, s) {
						d = append(d, s)
					}
				}
				return d
			}
			if x, y := only(ours, theirs), only(theirs, ours); len(x)+len(y) > 0 {
				t.Errorf("of %d packages: only ours %v, only apt's %v", len(ours), x, y)
			}
			fmt.Fprintf(t.Output(), "%d packages\n", len(ours))
		})
	}
}
