package preset

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

var (
	// pip says its index, as configured or its own default, where it explains
	// the flag.
	pipIndex = regexp.MustCompile(`--index-url <url> .*?\(default:? (\S+?)\)`)
	pipValue = regexp.MustCompile(`^([\w:.-]+)=(['"])(.*)['"]$`)
)

func askPip(ctx context.Context) (s Settings, err error) {
	pip := []string{installed("pip", "pip3")}
	if _, err := exec.LookPath(pip[0]); err != nil {
		pip = []string{installed("python3", "python"), "-m", "pip"}
	}
	env := []string{"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_COLOR=1"}
	call := func(args ...string) (string, error) {
		return command{args: append(pip[:len(pip):len(pip)], args...), env: env}.run(ctx)
	}
	listed, err := call("config", "list")
	if err != nil {
		return s, err
	}
	set := pipConfig(listed)
	help, err := call("install", "--help")
	if err != nil {
		return s, err
	}
	index := ""
	if m := pipIndex.FindStringSubmatch(strings.Join(strings.Fields(help), " ")); m != nil {
		index = m[1]
	}
	if v := set["index-url"]; v != "" {
		index = v
	}
	if index == "" {
		return s, fmt.Errorf("%s install --help does not say which index it uses", strings.Join(pip, " "))
	}
	clean := s.use(index)
	if clean == "" {
		return s, fmt.Errorf("its index, %s, is not reached over HTTP", redact(index))
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "[global]\nindex-url = %s\n", clean)
	s.Look = append(s.Look, Look{Kind: "page", URL: strings.TrimSuffix(clean, "/") + "/pip/"})
	for _, key := range []string{"extra-index-url", "find-links"} {
		var urls []string
		for _, v := range strings.Fields(set[key]) {
			u := s.use(v)
			if u == "" {
				continue // a folder of this host, which is not inside
			}
			urls = append(urls, u)
			if key == "extra-index-url" {
				u = strings.TrimSuffix(u, "/") + "/pip/"
			}
			s.Look = append(s.Look, Look{Kind: "page", URL: u, Spare: true})
		}
		if len(urls) > 0 {
			fmt.Fprintf(&conf, "%s =\n    %s\n", key, strings.Join(urls, "\n    "))
		}
	}
	if v := strings.Fields(set["trusted-host"]); len(v) > 0 {
		fmt.Fprintf(&conf, "trusted-host =\n    %s\n", strings.Join(v, "\n    "))
	}
	if ca := s.trust(set["cert"], os.Getenv("REQUESTS_CA_BUNDLE"), os.Getenv("SSL_CERT_FILE")); ca != "" {
		fmt.Fprintf(&conf, "cert = %s\n", ca)
	}
	conf.WriteString("disable-pip-version-check = true\n")
	s.file(".config/pip/pip.conf", conf.String())
	s.env("PIP_BREAK_SYSTEM_PACKAGES", "1") // the system is gone a moment later
	return s, nil
}

// pipConfig reads `pip config list`: what the environment says wins over what
// is set for install, and that over the rest.
func pipConfig(listed string) map[string]string {
	set, rank := map[string]string{}, map[string]int{}
	for _, line := range strings.Split(listed, "\n") {
		m := pipValue.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		section, key, ok := strings.Cut(m[1], ".")
		n := map[string]int{"global": 1, "install": 2, ":env:": 3}[section]
		if !ok || n < rank[key] || n == 0 {
			continue
		}
		rank[key] = n
		set[key] = strings.NewReplacer(`\n`, "\n", `\t`, " ", `\\`, `\`, `\'`, "'").Replace(m[3])
	}
	return set
}
