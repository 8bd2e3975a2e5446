package preset

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// have makes a PATH of these programs alone, each a shell script.
func have(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for _, k := range []string{"REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO"} {
		t.Setenv(k, "")
	}
	t.Setenv("HOME", dir)
	t.Setenv("CARGO_HOME", filepath.Join(dir, "cargo-home"))
}

const pipHelp = `
  -i, --index-url <url>       Base URL of the Python Package Index
                              (default %s). This should point
                              to a repository.
  --extra-index-url <url>     Extra URLs of package indexes to use in addition to --index-url.`

// pip answers as pip does: what is configured, and the help of install.
func pip(config, index string) string {
	return fmt.Sprintf("case \"$1\" in\nconfig) printf '%%s\\n' %s ;;\n*) printf '%%s' '%s' ;;\nesac", config, fmt.Sprintf(pipHelp, index))
}

func TestAsk(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("cert")})
	os.WriteFile(ca, slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")}), cert), 0o600)
	const goEnv = `printf '%s' '{"GOPROXY": "https://u:p@go.test/mod|https://b.test:8443,file:///srv,direct", "GOSUMDB": "sums.test+abc", "GONOSUMDB": "corp.test/*"}'`
	for _, tt := range []struct {
		name, preset string
		programs     map[string]string
		env          map[string]string
		cargo        string // its config.toml
		hosts        []string
		look         []string
		file, says   string // in a file inside
		vars         map[string]string
		fails        string
	}{
		{name: "pip by default", preset: "pip", programs: map[string]string{"pip": pip("''", "https://index.test/simple")},
			hosts: []string{"index.test:443"}, look: []string{"https://index.test/simple/pip/"},
			file: "/home/agent/.config/pip/pip.conf", says: "index-url = https://index.test/simple\n", vars: map[string]string{"PIP_BREAK_SYSTEM_PACKAGES": "1"}},
		{name: "pip configured", preset: "pip", programs: map[string]string{"pip": pip(`"global.index-url='https://a.test/simple'" ":env:.index-url='http://user:secret@b.test:8080/s/?token=secret'" "install.trusted-host='b.test'" `+
			`"global.extra-index-url='\\nhttps://tok@c.test/x/\\n/srv/wheels'" "global.find-links='/opt/wheels https://d.test/w'" "global.cert='`+ca+`'"`, "https://index.test/simple")},
			hosts: []string{"b.test:8080", "c.test:443", "d.test:443"}, look: []string{"http://b.test:8080/s/pip/", "https://c.test/x/pip/", "https://d.test/w"},
			file: "/home/agent/.config/pip/pip.conf", says: "[global]\nindex-url = http://b.test:8080/s/\nextra-index-url =\n    https://c.test/x/\nfind-links =\n    https://d.test/w\n" +
				"trusted-host =\n    b.test\ncert = /home/agent/.config/berm/ca.pem\n", vars: map[string]string{"PIP_BREAK_SYSTEM_PACKAGES": "1"}},
		{name: "pip as a module", preset: "pip", programs: map[string]string{"python3": "shift 2\n" + pip("''", "https://index.test/simple")}, hosts: []string{"index.test:443"}, look: []string{"https://index.test/simple/pip/"},
			vars: map[string]string{"PIP_BREAK_SYSTEM_PACKAGES": "1"}},
		{name: "no pip", preset: "pip", fails: "preset:pip: python3 is not installed on this host"},
		{name: "pip that says nothing", preset: "pip", programs: map[string]string{"pip": "true"}, fails: "pip install --help does not say which index it uses"},
		{name: "pip of a folder", preset: "pip", programs: map[string]string{"pip": pip("''", "/srv/index")}, fails: "is not reached over HTTP"},
		{name: "pip fails", preset: "pip", programs: map[string]string{"pip": "echo 'no https://u:secret@x.test' >&2; exit 3"}, fails: "pip config list: exit status 3: no https://x.test"},
		{name: "npm", preset: "npm", programs: map[string]string{"npm": `printf '%s' '{"registry": "https://r.test/npm/", "@corp:registry": "https://u:secret@corp.test/", "//corp.test/:_authToken": "(protected)", "cafile": "` + ca + `", "strict-ssl": true, "cache": "/home/me"}'`},
			hosts: []string{"r.test:443", "corp.test:443"}, look: []string{"https://r.test/npm/npm/latest"}, file: "/home/agent/.npmrc",
			says: "registry=https://r.test/npm/\n@corp:registry=https://corp.test/\ncafile=/home/agent/.config/berm/ca.pem\n", vars: map[string]string{"NODE_EXTRA_CA_CERTS": "/home/agent/.config/berm/ca.pem"}},
		{name: "npm and the system's authorities", preset: "npm", programs: map[string]string{"npm": `printf '%s' '{"registry": "http://r.test"}'`}, env: map[string]string{"NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt"},
			hosts: []string{"r.test:80"}, look: []string{"http://r.test/npm/latest"}, file: "/home/agent/.npmrc", says: "registry=http://r.test\nupdate-notifier=false\n",
			vars: map[string]string{"NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt"}},
		{name: "npm that fails", preset: "npm", programs: map[string]string{"npm": "echo broken"}, fails: "does not answer in JSON"},
		{name: "no npm", preset: "npm", fails: "preset:npm: npm is not installed on this host"},
		{name: "go", preset: "go", programs: map[string]string{"go": goEnv}, hosts: []string{"go.test:443", "b.test:8443", "sums.test:443"},
			file: "/home/agent/.config/go/env", says: "GOPROXY=https://go.test/mod|https://b.test:8443,direct\nGOSUMDB=sums.test+abc\nGONOSUMDB=corp.test/*\n"},
		{name: "go with a database elsewhere", preset: "go", programs: map[string]string{"go": `printf '%s' '{"GOPROXY": "http://go.test", "GOSUMDB": "sums.test+abc https://mirror.test/db"}'`},
			hosts: []string{"go.test:80", "mirror.test:443"}, file: "/home/agent/.config/go/env", says: "GOSUMDB=sums.test+abc https://mirror.test/db\n"},
		{name: "go without a database", preset: "go", programs: map[string]string{"go": `printf '%s' '{"GOPROXY": "http://go.test", "GOSUMDB": "off"}'`}, hosts: []string{"go.test:80"}},
		{name: "go without a proxy", preset: "go", programs: map[string]string{"go": `printf '%s' '{"GOPROXY": "direct", "GOSUMDB": "sums.test"}'`}, fails: "names no proxy"},
		{name: "cargo by default", preset: "cargo", programs: map[string]string{"cargo": "printf 'failed to download from `https://idx.test/config.json`\\n' >&2; exit 101"},
			hosts: []string{"idx.test:443"}, look: []string{"https://idx.test/config.json"}},
		{name: "cargo replaced", preset: "cargo", programs: map[string]string{"cargo": "printf 'failed to fetch `sparse+https://u:secret@m.test/crates/it/oa/itoa`\\n' >&2; exit 101"},
			cargo: "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://m.test/crates/\"\n[registries.corp]\nindex = \"sparse+https://tok@corp.test/i/\"\n[http]\ncainfo = \"" + ca + "\"\n",
			hosts: []string{"m.test:443", "corp.test:443"}, look: []string{"https://m.test/crates/config.json", "https://corp.test/i/config.json"}, file: "/home/agent/.cargo/config.toml",
			says: "[source.crates-io]\nreplace-with = \"host\"\n\n[source.host]\nregistry = \"sparse+https://m.test/crates/\"\n\n[registries.corp]\nindex = \"sparse+https://corp.test/i/\"\n\n[http]\ncainfo = \"/home/agent/.config/berm/ca.pem\"\n"},
		{name: "cargo that is a stub", preset: "cargo", programs: map[string]string{"cargo": "echo no toolchain >&2; exit 1"}, fails: "does not say which registry it uses: no toolchain"},
		{name: "another", preset: "gem", fails: "preset:gem: is not known; there are: pip, npm, go, cargo, apt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			have(t, tt.programs)
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			if tt.cargo != "" {
				os.MkdirAll(os.Getenv("CARGO_HOME"), 0o755)
				os.WriteFile(os.Getenv("CARGO_HOME")+"/config.toml", []byte(tt.cargo), 0o644)
				os.WriteFile(os.Getenv("CARGO_HOME")+"/credentials.toml", []byte("secret"), 0o644)
			}
			s, err := Ask(t.Context(), tt.preset)
			if tt.fails != "" {
				var ae *api.Error
				if !errors.As(err, &ae) || !strings.Contains(ae.Message, tt.fails) || ae.Hint == "" || strings.Contains(ae.Message, "secret") {
					t.Errorf("%+v, want %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var look []string
			for _, l := range s.Look {
				look = append(look, l.URL)
			}
			if !slices.Equal(s.Hosts, tt.hosts) || !slices.Equal(look, tt.look) || len(tt.vars)+len(s.Env) > 0 && !reflect.DeepEqual(s.Env, tt.vars) {
				t.Errorf("hosts %q, to look at %q, env %v", s.Hosts, look, s.Env)
			}
			if !strings.Contains(s.Files[tt.file], tt.says) {
				t.Errorf("%s is %q", tt.file, s.Files[tt.file])
			}
			if strings.Contains(s.Files["/home/agent/.config/berm/ca.pem"], "PRIVATE") {
				t.Error("a key goes in")
			}
			if all, _ := json.Marshal(s); strings.Contains(string(all), "secret") || strings.Contains(string(all), "tok@") {
				t.Errorf("a secret is in %s", all)
			}
		})
	}
}

// A client that hangs is ended with all that it started, and says so.
func TestAskGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fifo := filepath.Join(t.TempDir(), "started")
	have(t, map[string]string{"npm": ": > " + fifo + "; while :; do :; done"})
	done := make(chan error, 1)
	go func() { _, err := Ask(ctx, "npm"); done <- err }()
	for {
		if _, err := os.Stat(fifo); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("ended: %v", err)
		default:
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

func TestApt(t *testing.T) {
	dir := t.TempDir()
	if _, err := aptFrom(dir); err == nil {
		t.Error("no sources, no error")
	}
	os.MkdirAll(dir+"/sources.list.d", 0o755)
	os.WriteFile(dir+"/sources.list", []byte("# deb http://old.test/ x\ndeb [signed-by=/k.gpg] http://me:secret@a.test/debian stable main\ndeb cdrom:[x]/ y\n"), 0o644)
	os.WriteFile(dir+"/sources.list.d/b.sources", []byte("Types: deb\nURIs: https://b.test/d http://c.test:8080/e\nSuites: s\n"), 0o644)
	os.WriteFile(dir+"/sources.list.d/off.disabled", []byte("deb http://off.test/ x\n"), 0o644)
	s, err := aptFrom(dir)
	if err != nil || !slices.Equal(s.Hosts, []string{"a.test:80", "b.test:443", "c.test:8080"}) {
		t.Fatalf("%q, %v", s.Hosts, err)
	}
	const at = "/home/agent/.config/apt/"
	if got := s.Files[at+"sources.list.d/sources.list"]; got != "deb [signed-by=/k.gpg] http://a.test/debian stable main\ndeb cdrom:[x]/ y\n" {
		t.Errorf("%q", got)
	}
	if s.Env["APT_CONFIG"] != at+"apt.conf" || !strings.Contains(s.Files[at+"apt.conf"], at+"sources.list.d") {
		t.Errorf("%v, %q", s.Env, s.Files[at+"apt.conf"])
	}
}

func TestComplete(t *testing.T) {
	var srv *httptest.Server
	seen := 0
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen++
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential was sent")
		}
		switch r.URL.Path {
		case "/simple/pip/":
			fmt.Fprint(w, `<html><a href="https://files.test/p/pip-1.whl#sha256=0">x</a> <A data-x='1' HREF='../../local/pip.whl'>y</a>`+
				`<a href="https://files.test/p/pip-2.whl">z</a> <a href="ftp://no.test/x"> <a href="javascript:0"> <a href="http://[bad">`)
		case "/many/":
			for i := range 100 {
				fmt.Fprintf(w, `<a href="https://h%d.test/">`, i)
			}
		case "/moved/":
			http.Redirect(w, r, srv.URL+"/simple/pip/", http.StatusFound)
		case "/loop/":
			http.Redirect(w, r, "/loop/", http.StatusFound)
		case "/npm/latest":
			fmt.Fprint(w, `{"dist": {"tarball": "https://tar.test:8443/npm.tgz"}}`)
		case "/config.json":
			fmt.Fprint(w, `{"dl": "https://dl.test/{crate}/{lowerprefix}"}`)
		case "/text":
			fmt.Fprint(w, "no JSON")
		case "/secret/":
			w.WriteHeader(http.StatusUnauthorized)
		case "/broken/":
			w.WriteHeader(http.StatusBadGateway)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer srv.Close()
	own := strings.TrimPrefix(srv.URL, "http://")
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, tt := range []struct {
		name  string
		look  Look
		hosts []string
		fails string
	}{
		{"a page", Look{Kind: "page", URL: srv.URL + "/simple/pip/"}, []string{"r.test:443", "files.test:443", own}, ""},
		{"a page that moved", Look{Kind: "page", URL: srv.URL + "/moved/"}, []string{"r.test:443", own, "files.test:443"}, ""},
		{"a tarball", Look{Kind: "tarball", URL: srv.URL + "/npm/latest"}, []string{"r.test:443", "tar.test:8443"}, ""},
		{"crates", Look{Kind: "dl", URL: srv.URL + "/config.json"}, []string{"r.test:443", "dl.test:443"}, ""},
		{"not there", Look{Kind: "page", URL: srv.URL + "/none/"}, []string{"r.test:443"}, ""},
		{"too many hosts", Look{Kind: "page", URL: srv.URL + "/many/"}, nil, "points to more than 16 hosts"},
		{"a loop", Look{Kind: "page", URL: srv.URL + "/loop/"}, nil, "more than 3 redirects"},
		{"no JSON", Look{Kind: "dl", URL: srv.URL + "/text"}, nil, "is not JSON"},
		{"a password is needed", Look{Kind: "page", URL: srv.URL + "/secret/"}, nil, "401 Unauthorized: without a password, and none of yours goes into a sandbox"},
		{"broken", Look{Kind: "page", URL: srv.URL + "/broken/"}, nil, "502"},
		{"broken and spare", Look{Kind: "page", URL: srv.URL + "/broken/", Spare: true}, []string{"r.test:443"}, ""},
		{"nobody there", Look{Kind: "page", URL: gone.URL}, nil, "could not be asked where its files are"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Settings{Look: []Look{tt.look}}
			s.add("r.test:443")
			p, err := Complete(t.Context(), "pip", s)
			if tt.fails != "" {
				var ae *api.Error
				if !errors.As(err, &ae) || !strings.Contains(ae.Message, tt.fails) || !strings.HasPrefix(ae.Message, "preset:pip: ") {
					t.Errorf("%v, want %q", err, tt.fails)
				}
				return
			}
			if err != nil || !slices.Equal(p.Hosts, tt.hosts) {
				t.Errorf("%q, %v; want %q", p.Hosts, err, tt.hosts)
			}
		})
	}
	if seen == 0 {
		t.Error("nobody was asked")
	}
}

// TestHostileRegistry: what a registry points to is no reason to reach what is
// private, unless it is private itself, and metadata services not even then.
func TestHostileRegistry(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<a href="https://files.test/"> <a href="http://10.9.8.7/"> <a href="http://169.254.169.254/"> <a href="http://[fd00:ec2::254]/">`)
	}))
	defer srv.Close()
	for _, tt := range []struct {
		public       bool
		hosts, found []string
	}{
		{true, []string{"r.test:443"}, []string{"files.test:443"}},
		{false, []string{"r.test:443", "files.test:443", "10.9.8.7:80"}, nil},
	} {
		s, f := Settings{Look: []Look{{Kind: "page", URL: srv.URL}}}, newFetcher("")
		s.add("r.test:443")
		f.public = func(netip.Addr) bool { return tt.public }
		if p, err := s.complete(t.Context(), "pip", f); err != nil || !slices.Equal(p.Hosts, tt.hosts) || !slices.Equal(p.Found, tt.found) {
			t.Errorf("public %v: %+v, %v", tt.public, p, err)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string][2]string{
		"https://a.test":                    {"https://a.test", "a.test:443"},
		" https://U:P@A.test./x?token=1#y ": {"https://A.test./x", "a.test:443"},
		"http://[2001:db8::1]/x":            {"http://[2001:db8::1]/x", "[2001:db8::1]:80"},
		"https://a.test:99999999/":          {"https://a.test:99999999/", "a.test:99999999"},
		"file:///srv":                       {},
		"/srv":                              {},
		"https://":                          {},
		"git+ssh://x@y/z":                   {},
		"https://u:****@a.test/simple?":     {"https://a.test/simple", "a.test:443"},
	} {
		u, host := clean(in)
		if u != want[0] || host != want[1] {
			t.Errorf("%q: %q, %q", in, u, host)
		}
	}
}

// What this host's own clients say is understood, whatever it is; nothing of it
// may be a secret, nor more than one message can carry.
func TestThisHost(t *testing.T) {
	for _, name := range Names() {
		s, err := Ask(t.Context(), name)
		var ae *api.Error
		if err != nil && !errors.As(err, &ae) {
			t.Errorf("%s: %v", name, err)
		}
		b, _ := json.Marshal(s)
		if userinfo.Match(b) || len(b) > 64<<10 {
			t.Errorf("%s: %s", name, b)
		}
	}
}
