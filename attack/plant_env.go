package attack

import (
	"errors"
	"os"
)

// credentialVars are variables that tools take credentials from, by kind, and
// what is around the credential.
var credentialVars = []struct{ kind, name, before, after string }{
	{"env", "BERM_CANARY", "", ""},
	{"env-cloud", "AWS_SECRET_ACCESS_KEY", "", ""},
	{"env-cloud", "AWS_SESSION_TOKEN", "", ""},
	{"env-cloud", "AZURE_CLIENT_SECRET", "", ""},
	{"env-cloud", "GOOGLE_API_KEY", "", ""},
	{"env-cloud", "DIGITALOCEAN_ACCESS_TOKEN", "", ""},
	{"env-cloud", "CLOUDFLARE_API_TOKEN", "", ""},
	{"env-cloud", "HCLOUD_TOKEN", "", ""},
	{"env-forge", "GH_TOKEN", "", ""},
	{"env-forge", "GITHUB_TOKEN", "", ""},
	{"env-forge", "GITLAB_TOKEN", "", ""},
	{"env-forge", "CI_JOB_TOKEN", "", ""},
	{"env-model", "OPENAI_API_KEY", "", ""},
	{"env-model", "ANTHROPIC_API_KEY", "", ""},
	{"env-model", "GEMINI_API_KEY", "", ""},
	{"env-model", "MISTRAL_API_KEY", "", ""},
	{"env-registry", "NPM_TOKEN", "", ""},
	{"env-registry", "TWINE_PASSWORD", "", ""},
	{"env-registry", "CARGO_REGISTRY_TOKEN", "", ""},
	{"env-registry", "DOCKER_PASSWORD", "", ""},
	{"env-database", "PGPASSWORD", "", ""},
	{"env-database", "MYSQL_PWD", "", ""},
	{"env-database", "DATABASE_URL", "postgres://none:", "@berm-canary.invalid/none"},
	{"env-database", "REDIS_URL", "redis://none:", "@berm-canary.invalid"},
	{"env-service", "VAULT_TOKEN", "", ""},
	{"env-service", "SLACK_BOT_TOKEN", "", ""},
	{"env-service", "STRIPE_SECRET_KEY", "", ""},
	{"env-service", "SENTRY_AUTH_TOKEN", "", ""},
	{"env-service", "HEROKU_API_KEY", "", ""},
	{"env-berm", "BERM_TOKEN", "", ""},
	{"env-berm", "BERM_URL", "http://none:", "@berm-canary.invalid"},
}

// proxyVars say where a proxy is. They are set together or not at all, for what
// one of them says changes what the others mean: NO_PROXY keeps every program of
// this host away from ours.
var proxyVars = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

// plantEnvironment sets those variables that the user has not set.
func (p *planting) plantEnvironment() {
	for _, v := range credentialVars {
		p.variable(v.kind, v.name, v.before, v.after)
	}
	for _, name := range proxyVars {
		if _, taken := os.LookupEnv(name); taken {
			p.lack("env-proxy", errors.New("a proxy is set"))
			return
		}
	}
	p.variable("env-proxy", "HTTPS_PROXY", "http://none:", "@berm-canary.invalid:9")
	p.variable("env-proxy", "https_proxy", "http://none:", "@berm-canary.invalid:9")
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		os.Setenv(name, "*")
		p.vars = append(p.vars, name)
	}
}

func (p *planting) variable(kind, name, before, after string) {
	if _, taken := os.LookupEnv(name); taken {
		p.lack(kind, errors.New(name+" is set"))
		return
	}
	v := newCanary()
	p.note(kind, name, "the variable "+name, v)
	p.vars = append(p.vars, name)
	os.Setenv(name, before+v+after)
}
