package preset

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	cargoURL     = regexp.MustCompile("`(?:sparse\\+)?(https?://[^`\\s]+)`")
	cargoSection = regexp.MustCompile(`^\s*\[+\s*([^\]]+?)\s*\]`)
	cargoValue   = regexp.MustCompile(`^\s*([\w.-]+)\s*=\s*"([^"]*)"`)
	cargoEnv     = regexp.MustCompile(`^CARGO_REGISTRIES_([A-Z0-9_]+)_INDEX=(.*)$`)
)

// askCargo lets cargo fetch something through a proxy that lets nothing through,
// and reads in its complaint where it would have gone: its default, or what this
// host's configuration puts in its place.
func askCargo(ctx context.Context) (s Settings, err error) {
	scratch, err := os.MkdirTemp("", "berm-cargo-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(scratch)
	closed, err := net.Listen("tcp", "127.0.0.1:0") // held, so that nobody else listens there
	if err != nil {
		return s, err
	}
	defer closed.Close()
	go func() {
		for {
			c, err := closed.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	config, err := cargoConfig()
	if err != nil {
		return s, err
	}
	// A home of its own: nothing is cached there, locked, or secret.
	home := filepath.Join(scratch, "home")
	for path, text := range map[string]string{
		"home/config.toml": config,
		"p/Cargo.toml":     "[package]\nname = \"p\"\nversion = \"0.0.0\"\nedition = \"2018\"\n[dependencies]\nitoa = \"1\"\n",
		"p/src/lib.rs":     "",
	} {
		path = filepath.Join(scratch, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return s, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return s, err
		}
	}
	said, err := command{args: []string{"cargo", "fetch"}, fail: true, dir: filepath.Join(scratch, "p"), env: []string{
		"CARGO_HOME=" + home, "CARGO_HTTP_PROXY=http://" + closed.Addr().String(), "CARGO_NET_RETRY=0", "CARGO_NET_OFFLINE=false",
		"CARGO_TERM_COLOR=never", "CARGO_HTTP_TIMEOUT=5", "RUSTUP_AUTO_INSTALL=0",
	}}.run(ctx)
	if err != nil {
		return s, err
	}
	m := cargoURL.FindStringSubmatch(said)
	if m == nil {
		return s, fmt.Errorf("cargo fetch does not say which registry it uses: %s", redact(lastLine(said)))
	}
	index := m[1]
	for _, tail := range []string{"config.json", "it/oa/itoa"} {
		index = strings.TrimSuffix(index, tail)
	}
	if index = s.use(index); index == "" {
		return s, fmt.Errorf("cargo fetch does not say which registry it uses")
	}
	s.Look = append(s.Look, Look{Kind: "dl", URL: strings.TrimSuffix(index, "/") + "/config.json"})

	var toml strings.Builder
	named, cainfo, replaced := cargoRegistries(config, os.Environ())
	if replaced {
		fmt.Fprintf(&toml, "[source.crates-io]\nreplace-with = \"host\"\n\n[source.host]\nregistry = \"sparse+%s/\"\n\n", strings.TrimSuffix(index, "/"))
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		kind := "sparse+"
		address, sparse := strings.CutPrefix(named[name], kind)
		if !sparse {
			kind = ""
		}
		if u := s.use(address); u != "" {
			fmt.Fprintf(&toml, "[registries.%s]\nindex = %q\n\n", name, kind+u)
			if sparse {
				s.Look = append(s.Look, Look{Kind: "dl", URL: strings.TrimSuffix(u, "/") + "/config.json", Spare: true})
			}
		}
	}
	if ca := s.trust(os.Getenv("CARGO_HTTP_CAINFO"), cainfo, os.Getenv("SSL_CERT_FILE")); ca != "" {
		fmt.Fprintf(&toml, "[http]\ncainfo = %q\n", ca)
	}
	if toml.Len() > 0 {
		s.file(".cargo/config.toml", toml.String())
	}
	return s, nil
}

// cargoConfig is the configuration of whoever asks; credentials are in a file of
// their own.
func cargoConfig() (string, error) {
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", nil
		}
		home = filepath.Join(user, ".cargo")
	}
	for _, name := range []string{"config", "config.toml"} { // in cargo's own order
		b, err := os.ReadFile(filepath.Join(home, name))
		if err == nil && len(b) <= maxOutput {
			return string(b), nil
		}
	}
	return "", nil
}

// cargoRegistries finds in a configuration the registries that have a name, the
// file of authorities, and whether something stands in the default's place. It
// knows as much TOML as such files have.
func cargoRegistries(config string, env []string) (named map[string]string, cainfo string, replaced bool) {
	named = map[string]string{}
	section := ""
	for _, line := range strings.Split(config, "\n") {
		if m := cargoSection.FindStringSubmatch(line); m != nil {
			section = strings.ReplaceAll(m[1], `"`, "")
			continue
		}
		m := cargoValue.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		key := strings.TrimPrefix(section+"."+m[1], ".")
		switch name, ok := strings.CutPrefix(key, "registries."); {
		case ok && strings.HasSuffix(name, ".index") && !strings.Contains(strings.TrimSuffix(name, ".index"), "."):
			named[strings.TrimSuffix(name, ".index")] = m[2]
		case key == "http.cainfo":
			cainfo = m[2]
		case key == "source.crates-io.replace-with":
			replaced = true
		}
	}
	for _, e := range env {
		if m := cargoEnv.FindStringSubmatch(e); m != nil {
			named[strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))] = m[2]
		}
		if strings.HasPrefix(e, "CARGO_SOURCE_CRATES_IO_REPLACE_WITH=") {
			replaced = true
		}
	}
	return named, cainfo, replaced
}
