package registry

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// logins is a home with a docker and a podman file, and helpers on the path.
func logins(t *testing.T, docker, podman string, helpers map[string]string) hostLogins {
	t.Helper()
	home, bin := t.TempDir(), t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		if text == "" {
			return
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".docker/config.json"), docker, 0o600)
	write(filepath.Join(home, ".config/containers/auth.json"), podman, 0o600)
	for name, script := range helpers {
		write(filepath.Join(bin, "docker-credential-"+name), "#!/bin/sh\n"+script+"\n", 0o700)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return hostLogins{env: func(string) string { return "" }, home: home, timeout: 2 * time.Second}
}

func TestHostCredentials(t *testing.T) {
	entry := func(key, user string) string { return fmt.Sprintf(`%q:{"auth":%q}`, key, b64(user+":pw:"+user)) }
	auths := func(entries ...string) string { return `{"auths":{` + strings.Join(entries, ",") + `}}` }
	helper := map[string]string{
		"echo":  `read server; echo "{\"ServerURL\":\"$server\",\"Username\":\"of $server\",\"Secret\":\"s3cret\"}"`,
		"token": `echo '{"Username":"<token>","Secret":"refresh"}'`,
		"none":  `echo "credentials not found in native keychain"; exit 1`,
		"fails": `echo "s3cret in an error"; echo s3cret >&2; exit 3`,
		"hangs": `sleep 60 & sleep 60`,
		"talks": `yes s3cret | head -c 10000000`,
		"junk":  `echo '{"Secret": s3cret}'`,
	}
	for _, tt := range []struct {
		name, docker, podman, registry string
		want                           string // user/password/identity/registry token, or an error
	}{
		{"nothing", "", "", "r.test", "///"},
		{"docker", auths(entry("r.test", "joe")), "", "r.test", "joe/pw:joe//"},
		{"docker, another", auths(entry("r.test", "joe")), "", "other.test", "///"},
		{"docker, a prefix", auths(entry("r.test.evil", "joe"), entry("r.tes", "joe")), "", "r.test", "///"},
		{"docker, a port", auths(entry("r.test:5000", "joe"), entry("r.test", "ann")), "", "r.test:5000", "joe/pw:joe//"},
		{"docker, old key", auths(entry("https://r.test/v1/", "joe")), "", "r.test", "joe/pw:joe//"},
		{"docker, the hub", auths(entry("https://index.docker.io/v1/", "joe")), "", "index.docker.io", "joe/pw:joe//"},
		{"docker, in the open", `{"auths":{"r.test":{"username":"joe","password":"pw"}}}`, "", "r.test", "joe/pw//"},
		{"docker, identity", `{"auths":{"r.test":{"identitytoken":"idt"}}}`, "", "r.test", "//idt/"},
		{"docker, registry token", `{"auths":{"r.test":{"registrytoken":"rt"}}}`, "", "r.test", "///rt"},
		{"docker, empty entry", `{"auths":{"r.test":{}}}`, "", "r.test", "///"},
		{"docker, bad base64", `{"auths":{"r.test":{"auth":"***"}}}`, "", "r.test", "///"},
		{"podman", "", auths(entry("r.test", "pod")), "r.test", "pod/pw:pod//"},
		{"podman, the hub", "", auths(entry("docker.io", "pod")), "index.docker.io", "pod/pw:pod//"},
		{"podman, a repository", "", auths(entry("r.test/team", "team"), entry("r.test", "all"), entry("r.test/team/app/x", "no")), "r.test", "team/pw:team//"},
		{"docker before podman", auths(entry("r.test", "joe")), auths(entry("r.test", "pod")), "r.test", "joe/pw:joe//"},
		{"helper", `{"credHelpers":{"r.test":"echo"}}`, "", "r.test", "of r.test/s3cret//"},
		{"helper, the hub", `{"credHelpers":{"docker.io":"echo"}}`, "", "index.docker.io", "of https://index.docker.io/v1//s3cret//"},
		{"helper, another registry", `{"credHelpers":{"r.test":"echo"}}`, "", "other.test", "///"},
		{"helper before entry", `{"credHelpers":{"r.test":"echo"},"auths":{"r.test":{"auth":"` + b64("joe:pw") + `"}}}`, "", "r.test", "of r.test/s3cret//"},
		{"store", `{"credsStore":"echo"}`, "", "any.test", "of any.test/s3cret//"},
		{"store, a token", `{"credsStore":"token"}`, "", "any.test", "//refresh/"},
		{"store without it, then podman", `{"credsStore":"none"}`, auths(entry("r.test", "pod")), "r.test", "pod/pw:pod//"},
		{"helper fails", `{"credHelpers":{"r.test":"fails"}}`, "", "r.test", "exit status 3"},
		{"helper hangs", `{"credHelpers":{"r.test":"hangs"}}`, "", "r.test", "did not answer"},
		{"helper talks", `{"credHelpers":{"r.test":"talks"}}`, "", "r.test", "more than"},
		{"helper says junk", `{"credHelpers":{"r.test":"junk"}}`, "", "r.test", "no answer of a helper"},
		{"helper missing", `{"credHelpers":{"r.test":"not-there"}}`, "", "r.test", "no such program"},
		{"helper with a path", `{"credHelpers":{"r.test":"../../bin/sh"}}`, "", "r.test", "no name of one"},
		{"helper fails, podman knows", `{"credHelpers":{"r.test":"fails"}}`, auths(entry("r.test", "pod")), "r.test", "pod/pw:pod//"},
		{"no JSON", `{"auths": s3cret`, "", "r.test", "it is not what docker"},
		{"too long", `{"x":"` + strings.Repeat("x", maxAuthFile) + `"}`, "", "r.test", "it is not what docker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := logins(t, tt.docker, tt.podman, helper)
			l, err := h.find(t.Context(), tt.registry, "team/app")
			got := strings.Join([]string{l.Username, l.Password, l.IdentityToken, l.RegistryToken}, "/")
			if err != nil {
				if got = err.Error(); strings.Contains(got, "s3cret") {
					t.Errorf("a secret is in %q", got)
				}
			}
			if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if s := fmt.Sprintf("%v %+v %#v %s", l, l, l, &l); l.Password != "" && strings.Contains(s, l.Password) {
				t.Errorf("a login prints as %q", s)
			}
		})
	}
}

func TestCredentialFiles(t *testing.T) {
	env := map[string]string{"DOCKER_CONFIG": "/d", "REGISTRY_AUTH_FILE": "/r", "XDG_RUNTIME_DIR": "/run/u", "XDG_CONFIG_HOME": "/c"}
	h := hostLogins{env: func(k string) string { return env[k] }, home: "/home/joe"}
	if got := strings.Join(h.files(), " "); got != "/d/config.json /r /run/u/containers/auth.json /c/containers/auth.json" {
		t.Error(got)
	}
	env = nil
	if got := strings.Join(h.files(), " "); got != "/home/joe/.docker/config.json /home/joe/.config/containers/auth.json" {
		t.Error(got)
	}
	h.home = ""
	if got := h.files(); len(got) != 0 {
		t.Error(got)
	}
	if _, err := HostCredentials()(context.Background(), "nobody-logs-in-here.test", "x"); err != nil {
		t.Error(err)
	}
}
