package attack

import (
	"os"
	"path/filepath"
	"strings"
)

// hereFiles are credentials as they lie in people's working trees: under names
// that say so, in text that looks so, and in what git keeps of a remote.
var hereFiles = []struct{ path, text string }{
	{".env", "API_KEY=%s\n"},
	{"config/prod.env", "DATABASE_PASSWORD=%s\n"},
	{".netrc", "machine berm-canary.invalid login none password %s\n"},
	{".npmrc", "//berm-canary.invalid/:_authToken=%s\n"},
	{".aws/credentials", "[default]\naws_secret_access_key = %s\n"},
	{"deploy/id_ed25519", "%s\n"},
	{"deploy/terraform.tfstate", "{\"password\":\"%s\"}\n"},
	{"notes/key.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n%s\n-----END OPENSSH PRIVATE KEY-----\n"},
	{".git/config", "[remote \"origin\"]\n\turl = https://none:%s@berm-canary.invalid/none.git\n"},
	{".git/modules/other/config", "[http]\n\textraheader = Authorization: Bearer %s\n"},
	{".git/.git-credentials", "https://none:%s@berm-canary.invalid\n"},
}

// plantHere lays out a working tree of a git repository, with credentials in it.
func (p *planting) plantHere() error {
	tree := filepath.Join(p.dir, "here")
	for _, dir := range []string{".git/objects", ".git/refs/heads"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(tree, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o600); err != nil {
		return err
	}
	for _, f := range hereFiles {
		path := filepath.Join(tree, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		v := newCanary()
		if err := p.put("here", path, v, strings.Replace(f.text, "%s", v, 1), 0o600); err != nil {
			return err
		}
	}
	p.kind("here").at = []string{tree}
	return nil
}
