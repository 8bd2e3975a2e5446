package preset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

func askNpm(ctx context.Context) (s Settings, err error) {
	out, err := command{args: []string{"npm", "config", "list", "--json"}, env: []string{"npm_config_update_notifier=false"}}.run(ctx)
	if err != nil {
		return s, err
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return s, fmt.Errorf("npm config list --json does not answer in JSON")
	}
	text := func(key string) string { v, _ := all[key].(string); return v }
	registry := s.use(text("registry"))
	if registry == "" {
		return s, fmt.Errorf("npm config get registry says nothing that is reached over HTTP")
	}
	var rc strings.Builder
	fmt.Fprintf(&rc, "registry=%s\n", registry)
	s.Look = append(s.Look, Look{Kind: "tarball", URL: strings.TrimSuffix(registry, "/") + "/npm/latest"})
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if scope, ok := strings.CutSuffix(k, ":registry"); ok && strings.HasPrefix(scope, "@") && !strings.ContainsAny(scope, "\r\n=") {
			if u := s.use(text(k)); u != "" {
				fmt.Fprintf(&rc, "%s=%s\n", k, u)
			}
		}
	}
	if ca := s.trust(text("cafile"), os.Getenv("NODE_EXTRA_CA_CERTS")); ca != "" {
		if strings.HasPrefix(ca, api.GuestHome) { // a root that is not the host's has other authorities at the system's place
			fmt.Fprintf(&rc, "cafile=%s\n", ca)
		}
		s.env("NODE_EXTRA_CA_CERTS", ca)
	}
	if all["strict-ssl"] == false {
		rc.WriteString("strict-ssl=false\n")
	}
	rc.WriteString("update-notifier=false\nfund=false\n")
	s.file(".npmrc", rc.String())
	return s, nil
}
