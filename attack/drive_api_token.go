package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// Attacks with a token that is worth little, or nothing any more.

// driveWider asks, in several ways, for more than the own sandbox reaches.
func driveWider(ctx context.Context, s *siege) error {
	at := "/v1/sandboxes/" + s.own + "/egress"
	for _, rules := range []string{`[{"allow":"narrow.example:443"}]`, `[{"allow":"*.example"}]`, `[{"allow":"0.0.0.0/0"},{"allow":"::/0"}]`} {
		for _, body := range []string{
			`{"egress":` + rules + `}`, `{"egress":[],"egress":` + rules + `}`, `{"egress":` + rules + `,"egress":[]}`, `{"EGRESS":` + rules + `}`,
			`{"egress":[],"Egress":` + rules + `}`, `{"\u0065gress":` + rules + `}`, `{"egress":[],"role":"operator","policy":{"egress":` + rules + `}}`,
		} {
			s.send(ctx, s.mallory.token, "PATCH", at, body)
		}
		for _, method := range []string{"PUT", "POST"} {
			s.send(ctx, s.mallory.token, method, at, `{"egress":`+rules+`}`, "X-HTTP-Method-Override: PATCH")
		}
	}
	now, err := s.warden.Egress(ctx, s.own)
	if err != nil {
		return err
	}
	s.check(string(now.Egress) == "[]", "its operator sees the policy as it was, []", fmt.Sprintf("its operator sees another policy now: %.200s", now.Egress))
	if string(now.Egress) != "[]" {
		_, err = s.warden.ChangeEgress(ctx, s.own, json.RawMessage("[]"))
	}
	return err
}

// made lists what somebody has made under a name, as the operator of a tenant sees it.
func (s *siege) made(ctx context.Context, p person, name string) ([]api.Sandbox, error) {
	return p.Sandboxes(ctx, client.Filter{Tags: map[string]string{"loot": name}, Ended: true})
}

// driveLimits asks for sandboxes that may use more than the token's ceiling.
func driveLimits(ctx context.Context, s *siege) error {
	name := s.name()
	for _, more := range []string{
		`"limits":{"memory_bytes":1073741824}`, `"limits":{"memory_bytes":-1}`, `"memory_mb":1024`, `"limits":{"memory_bytes":1},"memory_mb":1024`,
		`"limits":{"timeout_seconds":3600}`, `"timeout_seconds":3600`, `"limits":{"timeout_seconds":-1}`, `"limits":{"pids":4096}`, `"limits":{"pids":-1}`,
		`"limits":{"disk_bytes":8589934592}`, `"disk_gb":8`, `"limits":{"cpus":64}`, `"cpu":64`, `"limits":{"output_bytes":1073741824}`,
		`"limits":{"memory_bytes":1},"limits":{"memory_bytes":1073741824}`, `"limits":{"memory_bytes":268435457}`, `"limits":{"memory_bytes":1e300}`,
		`"limits":{"memory_bytes":9223372036854775808}`, `"Limits":{"pids":4096}`, `"limits":{"Pids":4096}`,
	} {
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"},`+more+`}`)
	}
	list, err := s.made(ctx, s.warden, name)
	if err != nil {
		return err
	}
	beyond := 0
	for _, sb := range list {
		for _, l := range []struct{ got, most float64 }{
			{float64(sb.Limits.MemoryBytes), float64(narrow.Limits.MemoryBytes)}, {sb.Limits.TimeoutSeconds, narrow.Limits.TimeoutSeconds},
			{float64(sb.Limits.Pids), float64(narrow.Limits.Pids)}, {float64(sb.Limits.DiskBytes), float64(narrow.Limits.DiskBytes)},
			{sb.Limits.CPUs, narrow.Limits.CPUs}, {float64(sb.Limits.OutputBytes), float64(narrow.Limits.OutputBytes)},
		} {
			if l.got > l.most || l.got <= 0 {
				beyond++
				s.breach("its operator sees a sandbox with a limit of %g where the ceiling is %g", l.got, l.most)
			}
		}
	}
	if beyond == 0 {
		s.saw("of what it asked for its operator sees %d sandboxes, none with a limit beyond the ceiling", len(list))
	}
	return nil
}

// driveReach asks for sandboxes that reach more than the token's ceiling.
func driveReach(ctx context.Context, s *siege) error {
	name := s.name()
	for _, rules := range []string{
		`[{"allow":"evil.example:443"}]`, `[{"allow":"*.example:443"}]`, `[{"allow":"narrow.example"}]`, `[{"allow":"narrow.example:443"},{"allow":"0.0.0.0/0"}]`,
		`[{"allow":"NARROW.example.:443"},{"allow":"evil.example:443"}]`, `[{"allow":"169.254.169.254/32"}]`, `[{"deny":"narrow.example:443"},{"allow":"::/0:1-65535"}]`,
		`[{"allow":"narrow.example:443","sni":"any"}]`,
	} {
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"},"egress":`+rules+`}`)
	}
	list, err := s.made(ctx, s.warden, name)
	if err != nil {
		return err
	}
	for _, sb := range list {
		now, err := s.warden.Egress(ctx, sb.SandboxID)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc([]string{"evil", "*", "/0", "169.254", "preset", `"narrow.example"`, "sni"}, func(w string) bool { return strings.Contains(string(now.Egress), w) }) {
			continue // no more than the ceiling
		}
		s.breach("its operator sees a sandbox that may reach %.200s", now.Egress)
	}
	s.saw("of what it asked for its operator sees %d sandboxes, none that reaches more than the ceiling", len(list))
	return nil
}

// driveLife asks to live longer than the token's ceiling.
func driveLife(ctx context.Context, s *siege) error {
	name := s.name()
	for _, more := range []string{`"ttl_seconds":86400`, `"ttl_seconds":1e9`, `"persistent":true`, `"persistent":true,"ttl_seconds":86400`, `"idle_timeout_seconds":86400`} {
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"},`+more+`}`)
		s.send(ctx, s.mallory.token, "PATCH", "/v1/sandboxes/"+s.own+"/lifecycle", `{`+more+`}`)
	}
	list, err := s.made(ctx, s.warden, name)
	if err != nil {
		return err
	}
	mine, err := s.warden.Get(ctx, s.own)
	if err != nil {
		return err
	}
	for _, sb := range append(list, mine) {
		if sb.TTLSeconds > narrow.TTLSeconds || sb.TTLSeconds <= 0 {
			s.breach("its operator sees a sandbox with %g s to live, the ceiling is %g", sb.TTLSeconds, narrow.TTLSeconds)
		}
	}
	s.saw("its operator sees %d sandboxes, none with more than %g s to live", len(list)+1, narrow.TTLSeconds)
	if mine.TTLSeconds > narrow.TTLSeconds || mine.Persistent { // a weak build's
		ttl, no := narrow.TTLSeconds, false
		_, err = s.warden.SetLifecycle(ctx, s.own, api.LifecycleChange{TTLSeconds: &ttl, Persistent: &no})
	}
	return err
}

// driveDeadline asks for commands that run longer than the token's ceiling.
func driveDeadline(ctx context.Context, s *siege) error {
	brief := *narrow
	brief.Limits.TimeoutSeconds = 1
	p, err := s.enrol(ctx, badTenant, api.RoleAgent, 0, &brief)
	if err != nil {
		return err
	}
	id, err := s.box(ctx, p, api.CreateRequest{})
	if err != nil {
		return err
	}
	for _, more := range []string{`"timeout_seconds":60`, `"timeout_seconds":-1,"detach":true`, `"timeout_seconds":1,"timeout_seconds":60,"detach":true`} {
		s.talk(ctx, s.request(p.token, "POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep","3"],`+more+`}`), 4*time.Second)
	}
	s.send(ctx, p.token, "POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep","1"]}`) // what it may: there is something to see
	time.Sleep(time.Second)
	events, err := s.events(ctx, api.EventExecStarted, api.EventExecEnded)
	if err != nil {
		return err
	}
	began, n, longest := map[string]time.Time{}, 0, time.Duration(0)
	for _, e := range events {
		var about struct {
			ExecID string `json:"exec_id"`
		}
		at, terr := time.Parse(time.RFC3339Nano, e.Time)
		if e.SandboxID != id || terr != nil || !decodeInto(e.Data, &about) {
			continue
		}
		if e.Type == api.EventExecStarted {
			began[about.ExecID] = at
		} else if b, ok := began[about.ExecID]; ok {
			n, longest = n+1, max(longest, at.Sub(b))
			delete(began, about.ExecID)
		}
	}
	if n == 0 {
		return fmt.Errorf("the log has no command of it that ended")
	}
	s.check(longest < 2500*time.Millisecond && len(began) == 0, fmt.Sprintf("the log has %d commands, the longest ran %.1f s of the one that the ceiling gives", n, longest.Seconds()),
		fmt.Sprintf("the log has commands that ran for %.1f s, and %d that still run, under a ceiling of one second", longest.Seconds(), len(began)))
	return nil
}

// tokens are those that the admin sees, by label.
func (s *siege) tokens(ctx context.Context) (map[string]api.Token, error) {
	list, err := s.admin.Tokens(ctx)
	byLabel := map[string]api.Token{}
	for _, t := range list {
		byLabel[t.Label], byLabel[t.TokenID] = t, t
	}
	return byLabel, err
}

// unmade says whether the admin sees a token of that label.
func (s *siege) unmade(ctx context.Context, label string) error {
	list, err := s.tokens(ctx)
	if err != nil {
		return err
	}
	t, is := list[label]
	s.check(!is, "the admin sees no token that it made", fmt.Sprintf("the admin sees a token that it made, of the role %s in the tenant %s", t.Role, t.Tenant))
	return nil
}

// driveMint makes tokens.
func driveMint(ctx context.Context, s *siege) error {
	label := s.name()
	for _, path := range []string{"/v1/tokens", "/v1/me/tokens", "/v1/tokens/", "//v1/tokens", "/v1/./tokens", "/v1/%74okens", "/V1/TOKENS", "/v1/sandboxes/../tokens", "/v1/tokens?role=admin"} {
		for _, role := range []string{"agent", "operator", "admin"} {
			s.send(ctx, s.mallory.token, "POST", path, `{"role":"`+role+`","label":"`+label+`"}`)
		}
	}
	return s.unmade(ctx, label)
}

// driveTitles says by every header that proxies trust that it is somebody else.
func driveTitles(ctx context.Context, s *siege) error {
	label := s.name()
	body := `{"role":"admin","label":"` + label + `"}`
	for _, h := range [][]string{
		{"X-Role: admin", "X-Berm-Role: admin", "X-User-Role: admin"}, {"X-Tenant: default", "X-Berm-Tenant: default"}, {"X-Forwarded-User: admin", "X-Remote-User: root", "Remote-User: root"},
		{"X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1"}, {"X-Original-URL: /v1/tokens", "X-Rewrite-URL: /v1/tokens"},
		{"Cookie: token=" + s.mallory.token + "; role=admin"}, {"Authorization: Bearer " + s.mallory.token}, {"Connection: close, Authorization"}, {"Authorization: Basic YWRtaW46YWRtaW4="},
		{"X-API-Key: admin", "X-Admin: true", "X-Internal: 1"}, {"Content-Type: application/x-www-form-urlencoded"},
	} {
		s.send(ctx, s.mallory.token, "POST", "/v1/tokens", body, h...)
		s.send(ctx, s.mallory.token, "POST", "/v1/tokens?role=admin&access_token="+s.mallory.token, body, h...)
	}
	return s.unmade(ctx, label)
}

// driveTokens lists the tokens of its own tenant.
func driveTokens(ctx context.Context, s *siege) error {
	t := s.warden.info
	s.secrets = append(s.secrets[:len(s.secrets):len(s.secrets)], needle{"the id of an operator's token", t.TokenID}, needle{"the beginning of an operator's token", t.Prefix})
	defer func() { s.secrets = s.secrets[:len(s.secrets)-2] }()
	for _, path := range []string{"/v1/tokens", "/v1/me/tokens", "/v1/tokens?tenant=" + badTenant, "/v1/tokens/" + t.TokenID, "/v1/me", "/v1/me?token=" + t.TokenID} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			s.send(ctx, s.mallory.token, method, path, "")
		}
	}
	s.saw("neither the operator's token's id nor its beginning came")
	return nil
}

// driveRevoke takes the operator's token away.
func driveRevoke(ctx context.Context, s *siege) error {
	p, err := s.enrol(ctx, badTenant, api.RoleOperator, 0, nil)
	if err != nil {
		return err
	}
	for _, name := range []string{p.info.TokenID, p.info.Prefix, "..%2F" + p.info.TokenID} {
		s.send(ctx, s.mallory.token, "DELETE", "/v1/tokens/"+name, "")
		s.send(ctx, s.mallory.token, "DELETE", "/v1/me/tokens/"+name, "")
	}
	return s.works(ctx, p)
}

// driveOverride does the same by a method that only a header or the body names.
func driveOverride(ctx context.Context, s *siege) error {
	p, err := s.enrol(ctx, badTenant, api.RoleOperator, 0, nil)
	if err != nil {
		return err
	}
	at := "/v1/tokens/" + p.info.TokenID
	for _, h := range []string{"X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE", "X-Method-Override: DELETE"} {
		for _, method := range []string{"POST", "GET", "PUT", "PATCH"} {
			s.send(ctx, s.mallory.token, method, at, "", h)
		}
	}
	s.send(ctx, s.mallory.token, "POST", at+"?_method=DELETE", "_method=DELETE", "Content-Type: application/x-www-form-urlencoded")
	s.send(ctx, s.mallory.token, "delete", at, "")
	s.send(ctx, s.mallory.token, "DELETE", at, "") // and plainly
	return s.works(ctx, p)
}

// works says whether the admin sees that a token still does, and takes it away.
func (s *siege) works(ctx context.Context, p person) error {
	list, err := s.tokens(ctx)
	if err != nil {
		return err
	}
	t, is := list[p.info.TokenID]
	ok := is && !t.Revoked
	s.check(ok, "the admin sees that the operator's token still works", "the admin sees that the operator's token was revoked")
	if ok {
		err = s.admin.RevokeToken(ctx, p.info.TokenID)
	}
	return err
}

// unstarted says whether the operators of any tenant see a sandbox of that name.
func (s *siege) unstarted(ctx context.Context, name string) error {
	n := 0
	for _, p := range []person{s.warden, s.keeper, {Client: s.admin}} {
		list, err := s.made(ctx, p, name)
		if err != nil {
			return err
		}
		n += len(list)
	}
	s.check(n == 0, "the operators see no sandbox that it made", fmt.Sprintf("the operators see %d sandboxes that it made", n))
	return nil
}

// spend makes a sandbox with a token, if that can be done.
func (s *siege) spend(ctx context.Context, token, name string) {
	s.send(ctx, token, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"}}`)
}

// driveExpired goes on after the token's time.
func driveExpired(ctx context.Context, s *siege) error {
	p, err := s.enrol(ctx, badTenant, api.RoleAgent, 1, narrow)
	if err != nil {
		return err
	}
	time.Sleep(1100 * time.Millisecond)
	name := s.name()
	s.spend(ctx, p.token, name)
	s.send(ctx, p.token, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"}}`, "Date: Thu, 01 Jan 1970 00:00:00 GMT", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT")
	return s.unstarted(ctx, name)
}

// driveRevoked goes on after the token was revoked.
func driveRevoked(ctx context.Context, s *siege) error {
	p, err := s.enrol(ctx, badTenant, api.RoleAgent, 0, narrow)
	if err != nil {
		return err
	}
	if err := s.admin.RevokeToken(ctx, p.info.TokenID); err != nil {
		return err
	}
	name := s.name()
	crowd(8, 8, func(int) {
		s.send(ctx, p.token, "PUT", "/v1/sandboxes/"+s.own+"/fs?path=/workspace/"+name, "loot")
	})
	return s.unwritten(ctx, name)
}

// unwritten says whether its operator sees a file of that name in the own sandbox.
func (s *siege) unwritten(ctx context.Context, name string) error {
	l, err := s.warden.ListDir(ctx, s.own, "/workspace")
	if err != nil {
		return err
	}
	there := slices.ContainsFunc(l.Entries, func(e api.DirEntry) bool { return e.Name == name })
	s.check(!there, "its operator sees no file that it wrote", "its operator sees the file that it wrote")
	return nil
}

// driveAltered shows tokens that are almost right.
func driveAltered(ctx context.Context, s *siege) error {
	name, t := s.name(), s.mallory.token
	last := "0"
	if strings.HasSuffix(t, "0") {
		last = "1"
	}
	for _, token := range []string{
		t[:len(t)-1] + last, t[:len(t)-1], t + "0", strings.ToUpper(t), t[:12], t[:12] + strings.Repeat("0", len(t)-12), s.mallory.info.TokenID,
		s.mallory.info.Prefix, t + "%00", strings.TrimPrefix(t, "e2b_"), "null", "undefined", "' OR 1=1 --", strings.Repeat("e2b_0", 1000),
	} {
		s.send(ctx, token, "POST", "/v1/sandboxes/"+s.own+"/fs/dir?path=/workspace/"+name, "")
	}
	return s.unwritten(ctx, name)
}

// driveNobody comes without a token.
func driveNobody(ctx context.Context, s *siege) error {
	name := s.name()
	body := `{"tags":{"loot":"` + name + `"}}`
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes?access_token=" + s.mallory.token, "/v1/sandboxes?token=" + s.mallory.token, "/healthz/../v1/sandboxes", "/healthz%2f..%2fv1%2fsandboxes"} {
		s.send(ctx, "", "POST", path, body)
		s.send(ctx, "", "POST", path, body, "Authorization: Bearer")
		s.send(ctx, "", "POST", path, body, "Authorization: "+s.mallory.token)
		s.send(ctx, "", "POST", path, body, "Cookie: access_token="+s.mallory.token)
	}
	return s.unstarted(ctx, name)
}

// driveRace revokes a token while it is used by many at once.
func driveRace(ctx context.Context, s *siege) error {
	p, err := s.enrol(ctx, badTenant, api.RoleAgent, 0, narrow)
	if err != nil {
		return err
	}
	name, told := s.name(), make(chan error, 1)
	go func() {
		time.Sleep(60 * time.Millisecond)
		told <- s.admin.RevokeToken(ctx, p.info.TokenID)
	}()
	crowd(24, 6, func(int) { s.spend(ctx, p.token, name) })
	if err := <-told; err != nil {
		return err
	}
	s.spend(ctx, p.token, name)
	events, err := s.events(ctx, api.EventSandboxCreated, api.EventTokenRevoked)
	if err != nil {
		return err
	}
	revoked, before, after := false, 0, 0
	for _, e := range events {
		switch {
		case e.Type == api.EventTokenRevoked && strings.Contains(string(e.Data), p.info.TokenID):
			revoked = true
		case e.Type == api.EventSandboxCreated && e.Tags["loot"] == name && revoked:
			after++
		case e.Type == api.EventSandboxCreated && e.Tags["loot"] == name:
			before++
		}
	}
	if !revoked {
		return fmt.Errorf("the log does not have that the token was revoked")
	}
	// What was let in before may be written down after: as many as were at it at once.
	s.check(after <= 6, fmt.Sprintf("the log has %d sandboxes made before the token was revoked and %d that were under way then", before, after),
		fmt.Sprintf("the log has %d sandboxes made after the token was revoked", after))
	return nil
}

// driveNode reads what is about every tenant, as an agent of the one that runs the node.
func driveNode(ctx context.Context, s *siege) error {
	head, err := s.admin.AuditHead(ctx)
	if err != nil {
		return err
	}
	s.secrets = append(s.secrets[:len(s.secrets):len(s.secrets)], needle{"the key of the log", head.Key})
	defer func() { s.secrets = s.secrets[:len(s.secrets)-1] }()
	for _, path := range []string{"/v1/audit/export", "/v1/audit/head", "/v1/doctor/leaks", "/metrics", "/v1/templates/builds", "/v1/audit/export?tenant=default", "/v1/audit%2fexport", "/v1/audit/export/"} {
		s.send(ctx, s.insider.token, "GET", path, "")
	}
	s.send(ctx, s.insider.token, "POST", "/v1/audit/verify", "{}")
	s.saw("neither the log nor its key came")
	return nil
}
