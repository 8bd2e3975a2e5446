package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bermhq/berm/api"
)

const tokenAbout = `
A token lets a program in at the daemon: BERM_TOKEN, or an Authorization header. It
belongs to a tenant and sees only that tenant's sandboxes. Its role is agent (makes,
uses and ends sandboxes), operator (widens policies) or admin (makes tokens).

  export BERM_TOKEN=$(berm token create --role agent --ttl 8h --policy ceiling.yaml)
  berm token ls
  berm token revoke e2b_0123abcd
`

func tokenVerb() verb {
	return verb{
		name: "token", summary: "make, list and revoke tokens", usage: "VERB [FLAG...]", about: tokenAbout,
		subs: []verb{tokenCreate(), tokenLs(), tokenRevoke()},
	}
}

const tokenCreateAbout = `
Prints the token; it is shown only once. FILE is YAML or JSON: a policy, which is
then the ceiling, or "ceiling:" and "default:" with one each. The ceiling is the
most that a sandbox made with this token can get, the default what it gets when the
request says nothing.

  ceiling:
    limits: {memory_bytes: 1073741824, timeout_seconds: 600}
    ttl_seconds: 7200
    templates: [host]
  default:
    limits: {memory_bytes: 268435456}
`

func tokenCreate() verb {
	req := api.TokenRequest{Role: api.RoleAgent}
	var policy string
	var asJSON bool
	fs := flags{
		{name: "role", value: "ROLE", help: "agent, operator or admin (default: agent)", set: oneWord(&req.Role, api.RoleAgent, api.RoleOperator, api.RoleAdmin)},
		{name: "tenant", value: "NAME", help: "whose it is (default: default)", set: text(&req.Tenant)},
		{name: "label", value: "TEXT", help: "what it is for", set: text(&req.Label)},
		{name: "ttl", value: "TIME", help: "how long it is good, as 8h or 30d (default: until revoked)", set: period("ttl", &req.TTLSeconds)},
		{name: "policy", value: "FILE", help: "what its sandboxes may get; - is standard input", set: text(&policy)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "create", summary: "make a token, and print it", usage: "[FLAG...]", flags: func() flags { return fs }, about: tokenCreateAbout,
		run: ask("token create", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) (err error) {
			if policy != "" {
				if req.Ceiling, req.Default, err = readPolicies(policy, a.Stdin); err != nil {
					return err
				}
			}
			t, err := a.CreateToken(ctx, req)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(t)
			}
			fmt.Fprintln(a.Stdout, shownName(t.Token))
			if isTerminal(a.Stdout) {
				a.note("it is shown only this once; berm token revoke %s ends it", t.Info.Prefix)
			}
			return nil
		}),
	}
}

// maxPolicy bounds a policy file.
const maxPolicy = 1 << 20

// readPolicies reads a policy file, strictly.
func readPolicies(name string, stdin io.Reader) (ceiling, def *api.Policy, err error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, &fault{name, unwrapPath(err).Error(), "berm help token create"}
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	if err == nil && len(b) > maxPolicy {
		err = fmt.Errorf("is longer than 1m")
	}
	if err == nil {
		ceiling, def, err = parsePolicies(b)
	}
	if err != nil {
		return nil, nil, &fault{name, err.Error(), "berm help token create"}
	}
	return ceiling, def, nil
}

// parsePolicies reads a policy, which is the ceiling then, or both by name. JSON
// is YAML.
func parsePolicies(b []byte) (ceiling, def *api.Policy, err error) {
	var doc map[string]any
	d := yaml.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&doc); err != nil {
		return nil, nil, fmt.Errorf("is not a policy: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := d.Decode(new(any)); err != io.EOF {
		return nil, nil, fmt.Errorf("holds more than one document")
	}
	j, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, fmt.Errorf("is not a policy: %w", err)
	}
	into := func(v any) error {
		d := json.NewDecoder(bytes.NewReader(j))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("is not a policy: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		return nil
	}
	_, hasCeiling := doc["ceiling"]
	_, hasDefault := doc["default"]
	if hasCeiling || hasDefault {
		var both struct {
			Ceiling *api.Policy `json:"ceiling"`
			Default *api.Policy `json:"default"`
		}
		err = into(&both)
		return both.Ceiling, both.Default, err
	}
	if len(doc) == 0 {
		return nil, nil, fmt.Errorf("holds no policy")
	}
	ceiling = &api.Policy{}
	return ceiling, nil, into(ceiling)
}

func tokenLs() verb {
	var asJSON bool
	fs := flags{{name: "json", help: "print one JSON array", set: toggle(&asJSON)}}
	return verb{
		name: "ls", summary: "list tokens", usage: "[--json]", flags: func() flags { return fs },
		run: ask("token ls", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			list, err := a.Tokens(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(nonNil(list))
			}
			t := newTable(a.Stdout, "PREFIX", "ROLE", "TENANT", "AGE", "LEFT", "POLICY", "LABEL")
			for _, tk := range list {
				left := until(tk.ExpiresAt)
				if tk.Revoked {
					left = "revoked"
				}
				policy := slices.DeleteFunc([]string{"ceiling", "default"}, func(s string) bool {
					return s == "ceiling" && tk.Ceiling == nil || s == "default" && tk.Default == nil
				})
				t.row(tk.Prefix, tk.Role, tk.Tenant, since(tk.CreatedAt), left, strings.Join(policy, " "), tk.Label)
			}
			t.end()
			return nil
		}),
	}
}

func tokenRevoke() verb {
	return verb{
		name: "revoke", summary: "end tokens, by id or prefix", usage: "TOKEN...", flags: func() flags { return nil },
		run: ask("token revoke", nil, 1, -1, func(ctx context.Context, a *asker, args []string) error {
			for _, arg := range args {
				if err := a.RevokeToken(ctx, arg); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}
