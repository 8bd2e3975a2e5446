package preset

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func askGo(ctx context.Context) (s Settings, err error) {
	keys := []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE"}
	out, err := command{args: append([]string{"go", "env", "-json"}, keys...), env: []string{"GOTOOLCHAIN=local"}}.run(ctx)
	if err != nil {
		return s, err
	}
	var set map[string]string
	if err := json.Unmarshal([]byte(out), &set); err != nil {
		return s, fmt.Errorf("go env -json does not answer in JSON")
	}
	if set["GOPROXY"] = s.proxies(set["GOPROXY"]); len(s.Hosts) == 0 {
		return s, fmt.Errorf("go env GOPROXY names no proxy that is reached over HTTP")
	}
	// The database is asked through the proxy first, and directly by one that
	// does not pass it on.
	switch db := strings.Fields(set["GOSUMDB"]); {
	case len(db) == 0 || db[0] == "off":
	case len(db) > 1:
		u := s.use(db[1])
		set["GOSUMDB"] = strings.TrimSpace(db[0] + " " + u)
	default:
		name, _, _ := strings.Cut(db[0], "+") // a key may follow
		s.use("https://" + name)
	}
	var conf strings.Builder
	for _, k := range keys {
		if v := set[k]; v != "" && !strings.ContainsAny(v, "\r\n") {
			fmt.Fprintf(&conf, "%s=%s\n", k, v)
		}
	}
	s.file(".config/go/env", conf.String())
	if ca := s.trust(os.Getenv("SSL_CERT_FILE")); strings.HasPrefix(ca, "/home/") { // Go knows the system's by itself
		s.env("SSL_CERT_FILE", ca)
	}
	return s, nil
}

// proxies cleans a list such as URL,URL|direct, and uses what is in it.
func (s *Settings) proxies(list string) string {
	var out strings.Builder
	sep := ""
	for list != "" {
		entry, rest, next := list, "", ""
		if i := strings.IndexAny(list, ",|"); i >= 0 {
			entry, next, rest = list[:i], list[i:i+1], list[i+1:]
		}
		list = rest
		entry = strings.TrimSpace(entry)
		if entry != "direct" && entry != "off" {
			entry = s.use(entry)
		}
		if entry != "" {
			out.WriteString(sep + entry)
			sep = next
		}
	}
	return out.String()
}
