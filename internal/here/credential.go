package here

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// maxLook is the longest file that is looked into for credentials.
const maxLook = 256 << 10

// folders that hold nothing but settings and keys of a person.
var credentialDirs = []string{".aws", ".ssh", ".gnupg", ".azure", ".kube", ".gcloud", ".password-store"}

var credentialNames = []string{
	".netrc", "_netrc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".envrc", ".dockercfg", ".s3cfg", ".boto",
	"kubeconfig", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".htpasswd", ".terraformrc",
	"credentials.tfrc.json", "application_default_credentials.json", "service-account.json", "service_account.json", "serviceaccount.json",
}

var credentialSuffixes = []string{
	".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".kubeconfig", ".ppk", ".tfstate", ".tfstate.backup", ".agekey",
}

// examples are what people publish to say which variables there are.
var examples = []string{"example", "sample", "template", "tmpl", "dist", "defaults", "schema", "ci"}

// credentialName says that a name alone makes a file or folder look like a
// credential of a person.
func credentialName(path, name string, dir bool) bool {
	lower := strings.ToLower(name)
	if inGit(path) { // where git's own helper may have been told to store them
		return !dir && (lower == ".git-credentials" || lower == "credentials" && strings.HasSuffix(path, ".git/"+name))
	}
	if dir {
		return slices.Contains(credentialDirs, lower) || lower == "gcloud" && strings.HasSuffix(path, ".config/gcloud")
	}
	if slices.Contains(credentialNames, lower) {
		return true
	}
	for _, s := range credentialSuffixes {
		if strings.HasSuffix(lower, s) {
			return true
		}
	}
	switch rest, env := strings.CutPrefix(lower, ".env"); {
	case lower == ".env":
		return true
	case env && strings.ContainsRune(".-_~", rune(rest[0])), strings.HasSuffix(lower, ".env"):
		parts := strings.FieldsFunc(lower, func(r rune) bool { return strings.ContainsRune(".-_~", r) })
		return !slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(examples, part) })
	case lower == "config.json":
		return strings.HasSuffix(path, ".docker/config.json")
	case lower == "credentials" || lower == "credentials.toml":
		return strings.HasSuffix(path, ".cargo/"+lower) || strings.HasSuffix(path, ".gem/"+lower)
	}
	return false
}

// Words that a file must hold before its text is looked at more closely: most
// files hold none.
var hints = [][]byte{
	[]byte("PRIVATE KEY-----"), []byte("PRIVATE KEY BLOCK"), []byte("AKIA"), []byte("ASIA"), []byte("ghp_"), []byte("gho_"), []byte("ghs_"), []byte("ghu_"),
	[]byte("github_pat_"), []byte("glpat-"), []byte("xox"), []byte("sk-ant-"), []byte("sk-proj-"), []byte("sk_live_"), []byte("rk_live_"), []byte("npm_"),
	[]byte("pypi-AgE"), []byte("AIza"), []byte("dop_v1_"), []byte("hf_"), []byte("SG."), []byte("AGE-SECRET-KEY-1"), []byte("service_account"),
}

// shapes are those of keys and tokens that are worth something. A key begins a
// line and has a body: a program that only speaks of one has not.
var shapes = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^[ \t]*-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----\r?\n(?:[A-Za-z-]+: .*\r?\n|\r?\n)*[ \t]*[A-Za-z0-9+/=]{40}`),
	regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z2-7]{16}\b`),
	regexp.MustCompile(`\b(?:ghp|gho|ghs|ghu)_[A-Za-z0-9]{36}\b`),
	regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{60,}`),
	regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`),
	regexp.MustCompile(`\bxox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{16,}`),
	regexp.MustCompile(`\bsk-(?:ant|proj)-[A-Za-z0-9_-]{32,}`),
	regexp.MustCompile(`\b[sr]k_live_[A-Za-z0-9]{20,}`),
	regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}\b`),
	regexp.MustCompile(`\bpypi-AgE[A-Za-z0-9_-]{50,}`),
	regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}\b`),
	regexp.MustCompile(`\bdop_v1_[a-f0-9]{64}\b`),
	regexp.MustCompile(`\bhf_[A-Za-z0-9]{34}\b`),
	regexp.MustCompile(`\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b`),
	regexp.MustCompile(`\bAGE-SECRET-KEY-1[A-Z0-9]{50,}`),
	regexp.MustCompile(`"type"\s*:\s*"service_account"`),
}

// settings are files that are credentials only if they hold one.
var settings = map[string]*regexp.Regexp{
	".npmrc":      regexp.MustCompile(`(?mi)^[^#;\n]*(?:_auth|_authToken|_password)\s*=\s*[^\s$]`),
	".yarnrc.yml": regexp.MustCompile(`(?mi)^\s*npmAuth(?:Token|Ident)\s*:\s*["']?[^\s$"']`),
	".pypirc":     regexp.MustCompile(`(?mi)^\s*(?:password|token)\s*[=:]\s*\S`),
	"pip.conf":    regexp.MustCompile(`://[^/\s:@]+:[^/\s@]+@`),
	".wgetrc":     regexp.MustCompile(`(?mi)password\s*=\s*\S`),
	".curlrc":     regexp.MustCompile(`(?mi)^\s*(?:-u|--?user|--?oauth2-bearer)\b`),
	"auth.json":   regexp.MustCompile(`(?i)"(?:password|token|refresh_token|access_token|github-oauth|http-basic)"\s*:`),
}

// published says that a path lies where packages of others are unpacked: what
// looks like a key there is in every copy of them.
func published(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "node_modules", "site-packages", "vendor", "dist-packages", ".git":
			return true
		}
	}
	return false
}

// mayLook says whether a file is one to look into.
func mayLook(path string, size int64) bool {
	return size > 0 && size <= maxLook && !published(path)
}

// credentialText says that the text of a file looks like a credential.
func credentialText(path string, data []byte) bool {
	name := strings.ToLower(base(path))
	if re := settings[name]; re != nil && re.Match(data) {
		return true
	}
	if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
		return false
	}
	if (strings.HasSuffix(name, ".pem") || strings.HasSuffix(name, ".key")) && bytes.Contains(data, []byte("PRIVATE KEY")) {
		return true
	}
	if !slices.ContainsFunc(hints, func(h []byte) bool { return bytes.Contains(data, h) }) {
		return false
	}
	return slices.ContainsFunc(shapes, func(re *regexp.Regexp) bool { return re.Match(data) })
}

// gitConfig says that a path is a repository's own settings.
func gitConfig(path string) bool {
	return (base(path) == "config" || base(path) == "config.worktree") && inGit(path)
}

var (
	urlSecret  = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@"']+@`)
	lineSecret = regexp.MustCompile(`(?mi)^[ \t]*(?:extraheader|password|token|oauthtoken|smtppass|cookiefile|helper)[ \t]*=.*(?:\\\r?\n.*)*\r?\n?`)
	sshUser    = regexp.MustCompile(`(?i)^(?:git\+)?ssh://$`)
)

// cleanGitConfig takes credentials out of a repository's settings: users and
// passwords in URLs (not of ssh, whose users are no secret), headers, helpers.
func cleanGitConfig(data []byte) []byte {
	data = lineSecret.ReplaceAll(data, nil)
	return urlSecret.ReplaceAllFunc(data, func(m []byte) []byte {
		scheme := m[:bytes.Index(m, []byte("://"))+3]
		rest := m[len(scheme):]
		if sshUser.Match(scheme) && !bytes.Contains(rest, []byte(":")) {
			return m
		}
		return scheme
	})
}
