package attack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// credentialFiles are where tools keep what they log in with, below a home, and
// what a file there looks like: one that its tool passes over, because it is of
// a host that does not exist, or of a profile or an account that nobody asks for.
// For that reason there is no canary in what every program takes without being
// asked, like the default credentials of a cloud, nor in the history of a shell
// that people are in, which it writes when it ends.
var credentialFiles = []struct{ kind, path, text string }{
	{"aws", ".aws/credentials", "[berm-canary]\naws_access_key_id = none\naws_secret_access_key = %s\n"},
	{"aws", ".aws/sso/cache/berm-canary.json", "{\"startUrl\":\"https://berm-canary.invalid\",\"accessToken\":\"%s\"}\n"},
	{"gcloud", ".config/gcloud/legacy_credentials/berm-canary/adc.json", "{\"type\":\"authorized_user\",\"refresh_token\":\"%s\"}\n"},
	{"azure", ".azure/msal_token_cache.json", "{\"RefreshToken\":{\"berm-canary\":{\"secret\":\"%s\"}}}\n"},
	{"clouds", ".oci/berm-canary.pem", "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"},
	{"clouds", ".config/doctl/berm-canary.yaml", "access-token: %s\n"},
	{"clouds", ".fly/berm-canary.yml", "access_token: %s\n"},
	{"kube", ".kube/config", "users:\n- name: berm-canary\n  user:\n    token: %s\n"},
	{"docker", ".docker/config.json", "{\"auths\":{\"berm-canary.invalid\":{\"identitytoken\":\"%s\"}}}\n"},
	{"docker", ".config/containers/auth.json", "{\"auths\":{\"berm-canary.invalid\":{\"identitytoken\":\"%s\"}}}\n"},
	{"gh", ".config/gh/hosts.yml", "berm-canary.invalid:\n    oauth_token: %s\n"},
	{"gh", ".config/hub", "berm-canary.invalid:\n- user: none\n  oauth_token: %s\n"},
	{"gh", ".config/glab-cli/config.yml", "hosts:\n    berm-canary.invalid:\n        token: %s\n"},
	{"git", ".git-credentials", "https://none:%s@berm-canary.invalid\n"},
	{"npm", ".npmrc", "//berm-canary.invalid/:_authToken=%s\n"},
	{"npm", ".yarnrc.yml", "npmRegistries:\n  \"//berm-canary.invalid\":\n    npmAuthToken: %s\n"},
	{"pip", ".pypirc", "[berm-canary]\nrepository = https://berm-canary.invalid\nusername = none\npassword = %s\n"},
	{"pip", ".config/pip/pip.conf", "[berm-canary]\nindex-url = https://none:%s@berm-canary.invalid/simple\n"},
	{"cargo", ".cargo/credentials.toml", "[registries.berm-canary]\ntoken = \"%s\"\n"},
	{"netrc", ".netrc", "machine berm-canary.invalid login none password %s\n"},
	{"ssh", ".ssh/id_berm_canary", "-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n-----END OPENSSH PRIVATE KEY-----\n"},
	{"gnupg", ".gnupg/private-keys-v1.d/berm-canary.key", "(private-key(ecc(d %s)))\n"},
	{"terraform", ".terraform.d/credentials.tfrc.json", "{\"credentials\":{\"berm-canary.invalid\":{\"token\":\"%s\"}}}\n"},
	{"vault", ".vault-token", "%s"},
	{"database", ".pgpass", "berm-canary.invalid:5432:*:none:%s\n"},
	{"database", ".my.cnf", "[berm-canary]\npassword=%s\n"},
	{"rclone", ".config/rclone/rclone.conf", "[berm-canary]\ntype = webdav\nurl = https://berm-canary.invalid\npass = %s\n"},
	{"history", ".ash_history", "curl -H 'Authorization: Bearer %s' https://berm-canary.invalid\n"},
	{"history", ".psql_history", "alter role none password '%s';\n"},
	{"model", ".cache/huggingface/stored_tokens", "[berm-canary]\nhf_token = %s\n"},
	{"passwords", ".password-store/berm-canary.gpg", "%s\n"},
	{"passwords", ".local/share/keyrings/berm-canary.keyring", "[keyring]\ndisplay-name=berm-canary\n\n[1]\nsecret=%s\n"},
	{"passwords", ".config/Bitwarden CLI/berm-canary.json", "{\"accessToken\":\"%s\"}\n"},
}

// browserFiles are data bases of browsers, in profiles that no browser knows of.
var browserFiles = []struct{ kind, path, table, column string }{
	{"chrome", ".config/google-chrome/berm-canary/Cookies", "cookies", "value"},
	{"chrome", ".config/google-chrome/berm-canary/Login Data", "logins", "password_value"},
	{"chromium", ".config/chromium/berm-canary/Cookies", "cookies", "value"},
	{"chromium", ".config/chromium/berm-canary/Login Data", "logins", "password_value"},
	{"brave", ".config/BraveSoftware/Brave-Browser/berm-canary/Cookies", "cookies", "value"},
	{"brave", ".config/BraveSoftware/Brave-Browser/berm-canary/Login Data", "logins", "password_value"},
	{"firefox", ".mozilla/firefox/berm-canary.default/cookies.sqlite", "moz_cookies", "value"},
	{"firefox", ".mozilla/firefox/berm-canary.default/key4.db", "nssPrivate", "a11"},
}

// plantHome plants in the home of who runs this, and in the working directory.
func (p *planting) plantHome() error {
	home, err := os.UserHomeDir()
	if err != nil || home == "/" {
		home = ""
	}
	p.target.Home = home
	for _, f := range credentialFiles {
		v := newCanary()
		if err := p.below(home, f.kind, f.path, v, strings.Replace(f.text, "%s", v, 1)); err != nil {
			return err
		}
	}
	for _, f := range browserFiles {
		v := newCanary()
		if err := p.below(home, f.kind, f.path, v, sqlite(f.table, f.column, v)); err != nil {
			return err
		}
	}
	v := newCanary()
	if err := p.below(home, "firefox", ".mozilla/firefox/berm-canary.default/logins.json", v, "{\"logins\":[{\"encryptedPassword\":\""+v+"\"}]}\n"); err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		here = ""
	}
	v = newCanary()
	return p.below(here, "dotenv", ".env", v, "BERM_CANARY="+v+"\n")
}

// below plants under the name that tools use if that is free, else beside it, so
// that nothing of the user's is touched. A folder that cannot be written has
// nothing to plant in.
func (p *planting) below(base, kind, path, value, text string) error {
	if base == "" || base == "/" {
		p.lack(kind, errors.New("whoever runs this has no folder for it"))
		return nil
	}
	parts := strings.Split(path, "/")
	for i := 1; i < len(parts); i++ {
		if err := p.folder(filepath.Join(base, filepath.Join(parts[:i]...))); err != nil {
			p.lack(kind, err)
			return nil
		}
	}
	full := filepath.Join(base, path)
	err := p.put(kind, full, value, text, 0o600)
	if errors.Is(err, fs.ErrExist) {
		err = p.put(kind, filepath.Join(filepath.Dir(full), "."+p.word+"-"+filepath.Base(path)), value, text, 0o600)
	}
	if unwritable(err) {
		p.lack(kind, err)
		return nil
	}
	return err
}
