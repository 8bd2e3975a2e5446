package deb

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// aptConf is what apt.conf and its directory say, by lower case name:
// "acquire::http::proxy". Lists are not needed and overwrite themselves.
type aptConf map[string]string

// readAptConf reads the files that apt reads, in its order.
func readAptConf(etc string) aptConf {
	conf := aptConf{}
	more, _ := filepath.Glob(filepath.Join(etc, "apt/apt.conf.d/*")) // the pattern is fine
	for _, file := range append(more, filepath.Join(etc, "apt/apt.conf")) {
		if data, err := os.ReadFile(file); err == nil {
			conf.parse(string(data))
		}
	}
	return conf
}

// parse reads `Name "value";` and `Name { ... };`, nested in any way.
func (c aptConf) parse(text string) {
	var scope []string
	name, value := "", ""
	for tok, rest := aptToken(text); tok != ""; tok, rest = aptToken(rest) {
		switch {
		case tok == "{":
			if len(scope) > 20 {
				return
			}
			scope, name = append(scope, name), ""
		case tok == "}":
			if len(scope) > 0 {
				scope = scope[:len(scope)-1]
			}
			name = ""
		case tok == ";":
			if name != "" && value != "" {
				full := strings.Join(append(scope[:len(scope):len(scope)], name), "::")
				c[strings.ToLower(full)] = strings.Trim(value, `"`)
			}
			name, value = "", ""
		case name == "":
			name = strings.Trim(tok, `"`)
		default:
			value = tok
		}
	}
}

// aptToken cuts the next token: a brace, a semicolon, a string with its quotes,
// a word. It is "" at the end.
func aptToken(s string) (tok, rest string) {
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		switch {
		case s == "":
			return "", ""
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s, "*/")
		case s[0] == '#' || strings.HasPrefix(s, "//"):
			_, s, _ = strings.Cut(s, "\n")
		case s[0] == '"':
			if end := strings.IndexByte(s[1:], '"'); end >= 0 {
				return s[:end+2], s[end+2:]
			}
			return s, ""
		case strings.IndexByte("{};", s[0]) >= 0:
			return s[:1], s[1:]
		default:
			end := strings.IndexAny(s, " \t\r\n{};\"")
			if end < 0 {
				return s, ""
			}
			return s[:end], s[end:]
		}
	}
}

// proxy is the proxy of a request: apt's for its host, apt's for its scheme, or
// the environment's.
func (c aptConf) proxy(r *http.Request) (*url.URL, error) {
	key := "acquire::" + r.URL.Scheme + "::proxy"
	p := c[key+"::"+strings.ToLower(r.URL.Hostname())]
	if p == "" {
		p = c[key]
	}
	if p == "" && r.URL.Scheme == "https" {
		p = c["acquire::http::proxy"] // as apt does
	}
	switch {
	case strings.EqualFold(p, "direct"), strings.EqualFold(p, "false"):
		return nil, nil
	case p != "":
		return url.Parse(p)
	}
	return http.ProxyFromEnvironment(r)
}

// readAuth reads apt's auth.conf files, which are netrc with an optional scheme:
// the credentials of a host, sent to that host alone.
func readAuth(etc string) map[string]*url.Userinfo {
	auth := map[string]*url.Userinfo{}
	more, _ := filepath.Glob(filepath.Join(etc, "apt/auth.conf.d/*.conf")) // the pattern is fine
	for _, file := range append(more, filepath.Join(etc, "apt/auth.conf")) {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		machine, login := "", ""
		words := strings.Fields(string(data))
		for i := 0; i+1 < len(words); i += 2 {
			switch v := words[i+1]; words[i] {
			case "machine":
				machine, login = v, ""
				if _, rest, ok := strings.Cut(v, "://"); ok {
					machine = rest
				}
				machine, _, _ = strings.Cut(machine, "/")
			case "login":
				login = v
			case "password":
				if machine != "" {
					auth[machine] = url.UserPassword(login, v)
				}
			}
		}
	}
	return auth
}
