package preset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

var aptURL = regexp.MustCompile(`https?://[^\s\]]+`)

// askApt reads the lists that apt reads. Inside, nobody may write where apt
// keeps its state, so it gets another place for it.
func askApt(ctx context.Context) (Settings, error) { return aptFrom("/etc/apt") }

func aptFrom(dir string) (s Settings, err error) {
	list, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.list"))
	deb822, _ := filepath.Glob(filepath.Join(dir, "sources.list.d", "*.sources"))
	all := slices.Concat([]string{filepath.Join(dir, "sources.list")}, list, deb822)
	const home = api.GuestHome + "/.config/apt/"
	read, total := 0, 0
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || total+len(b) > maxCA {
			continue
		}
		read, total = read+1, total+len(b)
		var out strings.Builder
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue // what is written there is nobody's business
			}
			out.WriteString(aptURL.ReplaceAllStringFunc(line, func(u string) string { return s.use(u) }))
		}
		if strings.TrimSpace(out.String()) != "" {
			s.file(".config/apt/sources.list.d/"+filepath.Base(path), out.String())
		}
	}
	if read == 0 {
		return s, fmt.Errorf("%s has no sources that can be read", dir)
	}
	s.file(".config/apt/apt.conf", fmt.Sprintf("Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts %q;\nDir::State \"%s/.local/state/apt\";\n"+
		"Dir::State::status \"/var/lib/dpkg/status\";\nDir::Cache \"%s/.cache/apt\";\n", home+"sources.list.d", api.GuestHome, api.GuestHome))
	s.file(".local/state/apt/lists/partial/.keep", "")
	s.file(".cache/apt/archives/partial/.keep", "")
	s.env("APT_CONFIG", home+"apt.conf")
	return s, nil
}
