package attack

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// Attacks on another tenant.

// undisturbed says whether the log has anything that was done in a sandbox of
// the victim's since the attack began. The victim itself is quiet meanwhile.
func (s *siege) undisturbed(ctx context.Context, id string) error {
	time.Sleep(100 * time.Millisecond) // what follows from a decision is on disk by then
	events, err := s.events(ctx)
	if err != nil {
		return err
	}
	var done []string
	for _, e := range events {
		if e.SandboxID == id {
			done = union(done, []string{e.Type})
		}
	}
	s.check(len(done) == 0, "the log has nothing that was done in the other tenant's sandbox", "the log has what was done in the other tenant's sandbox: "+strings.Join(done, ", "))
	return nil
}

// upgrades asks for a connection that is no longer HTTP.
func upgrades(protocol string) []string {
	return []string{"Connection: Upgrade", "Upgrade: " + protocol, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
}

// driveExecThere runs commands in the victim's sandbox, by every door that there is.
func driveExecThere(ctx context.Context, s *siege) error {
	at, t := "/v1/sandboxes/"+s.theirs, s.mallory.token
	body := `{"args":["cat","/workspace/secret.txt"]}`
	s.send(ctx, t, "POST", at+"/exec", body)
	s.send(ctx, t, "POST", at+"/exec/stream", body)
	s.send(ctx, t, "POST", at+"/exec", body, upgrades("berm-exec")...)
	for _, path := range []string{"/exec/ws", "/exec/pty"} {
		s.send(ctx, t, "GET", at+path, "", upgrades("websocket")...)
		s.send(ctx, "", "GET", at+path+"?access_token="+t, "", upgrades("websocket")...)
	}
	return s.undisturbed(ctx, s.theirs)
}

// driveInput speaks to the victim's command, and signals it.
func driveInput(ctx context.Context, s *siege) error {
	x, err := s.victim.Spawn(ctx, s.theirs, api.ExecRequest{Args: []string{"sleep", "30"}, Detach: true})
	if err != nil {
		return err
	}
	defer s.victim.KillExec(context.WithoutCancel(ctx), s.theirs, x.ExecID)
	head, err := s.admin.AuditHead(ctx)
	if err != nil {
		return err
	}
	s.from = head.Seq
	for _, id := range []string{s.theirs, s.own} {
		at := "/v1/sandboxes/" + id + "/execs/" + x.ExecID
		s.send(ctx, s.mallory.token, "POST", at+"/stdin", "x")
		s.send(ctx, s.mallory.token, "POST", at+"/signal", `{"signal":"WINCH"}`)
		s.send(ctx, s.mallory.token, "GET", at+"/output", "")
		s.send(ctx, s.mallory.token, "GET", at, "")
	}
	s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes/"+s.own+"/exec", `{"args":["true"],"exec_id":"`+x.ExecID+`"}`)
	if err := s.undisturbed(ctx, s.theirs); err != nil {
		return err
	}
	x, err = s.keeper.GetExec(ctx, s.theirs, x.ExecID)
	if err != nil {
		return err
	}
	s.check(x.State == api.ExecRunning, "its operator sees that the command runs on", "its operator sees that the command is "+x.State)
	return nil
}

// driveReadThere reads the victim's files.
func driveReadThere(ctx context.Context, s *siege) error {
	at := "/v1/sandboxes/" + s.theirs
	for _, path := range []string{"/fs?path=/workspace/secret.txt", "/fs/dir?path=/workspace", "/fs/stat?path=/workspace/secret.txt", "/archive?path=/workspace", "/glob?pattern=/workspace/*",
		"/list?path=/workspace", "/files?path=/workspace/secret.txt", "/changes", "/fs?path=secret.txt&path=/workspace/secret.txt"} {
		s.send(ctx, s.mallory.token, "GET", at+path, "")
		s.send(ctx, s.mallory.token, "HEAD", at+path, "")
	}
	return s.undisturbed(ctx, s.theirs)
}

// driveWriteThere writes, moves and removes files of the victim's.
func driveWriteThere(ctx context.Context, s *siege) error {
	id, err := s.box(ctx, s.victim, api.CreateRequest{})
	if err != nil {
		return err
	}
	if _, err := s.victim.WriteFile(ctx, id, "/workspace/kept", 0o600, strings.NewReader("kept")); err != nil {
		return err
	}
	archive, err := archiveOf(File{"loot", []byte("loot")})
	if err != nil {
		return err
	}
	at, t := "/v1/sandboxes/"+id, s.mallory.token
	s.send(ctx, t, "PUT", at+"/fs?path=/workspace/loot", "loot")
	s.send(ctx, t, "PUT", at+"/archive?path=/workspace", archive.String())
	s.send(ctx, t, "POST", at+"/fs/dir?path=/workspace/loot2", "")
	s.send(ctx, t, "POST", at+"/fs/move", `{"from":"/workspace/kept","to":"/workspace/taken"}`)
	s.send(ctx, t, "DELETE", at+"/fs?path=/workspace/kept", "")
	l, err := s.keeper.ListDir(ctx, id, "/workspace")
	if err != nil {
		return err
	}
	var names []string
	for _, e := range l.Entries {
		names = append(names, e.Name)
	}
	s.check(slices.Equal(names, []string{"kept"}), "its operator sees the one file that the victim wrote", "its operator sees other files: "+strings.Join(names, " "))
	return nil
}

// driveEndThere ends, pauses and changes the victim's sandbox.
func driveEndThere(ctx context.Context, s *siege) error {
	id, err := s.box(ctx, s.victim, api.CreateRequest{Egress: []byte("[]")})
	if err != nil {
		return err
	}
	before, err := s.keeper.Get(ctx, id)
	if err != nil {
		return err
	}
	at, t := "/v1/sandboxes/"+id, s.mallory.token
	s.send(ctx, t, "PATCH", at+"/metadata", `{"tags":{"loot":"yes"}}`)
	s.send(ctx, t, "PATCH", at+"/lifecycle", `{"ttl_seconds":2}`)
	s.send(ctx, t, "PATCH", at+"/egress", `{"egress":[{"deny":"0.0.0.0/0"}]}`)
	s.send(ctx, t, "POST", at+"/pause", "")
	s.send(ctx, t, "DELETE", at, "")
	after, err := s.keeper.Get(ctx, id)
	if err != nil {
		s.breach("its operator no longer finds the victim's sandbox: %v", err)
		return nil
	}
	s.check(after.State == before.State && after.ExpiresAt == before.ExpiresAt && len(after.Tags) == 0 && string(after.Egress) == "[]",
		"its operator sees the sandbox as it was: running, with its time, its policy and no tag",
		fmt.Sprintf("its operator sees another: %s until %s, policy %s, tags %v", after.State, after.ExpiresAt, after.Egress, after.Tags))
	return nil
}

// driveWatchThere reads what is said of the victim's sandbox.
func driveWatchThere(ctx context.Context, s *siege) error {
	at := "/v1/sandboxes/" + s.theirs
	for _, path := range []string{"", "/report", "/lifecycle", "/metadata", "/metrics", "/egress", "/events", "/logs", "/ports", "/execs", "/execs/" + s.served, "/execs/" + s.served + "/output"} {
		s.send(ctx, s.mallory.token, "GET", at+path, "")
		s.send(ctx, s.mallory.token, "GET", at+path, "", "Accept: text/event-stream")
	}
	for _, subject := range []string{s.theirs, "victims-session", s.served} {
		s.send(ctx, s.mallory.token, "GET", "/v1/audit/report/"+subject, "")
	}
	return s.undisturbed(ctx, s.theirs)
}

// driveStreams follows the events of the victim's tenant.
func driveStreams(ctx context.Context, s *siege) error {
	word := newCanary()
	s.secrets = append(s.secrets[:len(s.secrets):len(s.secrets)], needle{"an event of another tenant", word})
	defer func() { s.secrets = s.secrets[:len(s.secrets)-1] }()
	queries := []string{"?after=0&limit=1000", "?tenant=" + goodTenant, "?sandbox_id=" + s.theirs, "?session=victims-session", "?sandbox_id=" + s.own + "&sandbox_id=" + s.theirs,
		"?type=file.written&type=sandbox.created&type=token.created", "?stream=1", "?wait=1&after=end", "?follow=1"}
	crowd(2*len(queries)+1, 2*len(queries)+1, func(i int) {
		if i == 0 { // something happens while they follow
			time.Sleep(300 * time.Millisecond)
			s.victim.WriteFile(ctx, s.theirs, "/workspace/"+word, 0o600, strings.NewReader("x"))
			return
		}
		header := []string{"Accept: text/event-stream", "X-Tenant: " + goodTenant, "Last-Event-ID: 0"}[i%2:]
		s.talk(ctx, s.request(s.mallory.token, "GET", "/v1/events"+queries[(i-1)/2], "", header...), time.Second)
	})
	events, err := s.events(ctx, api.EventFileWritten)
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return fmt.Errorf("the log does not have what the victim did meanwhile")
	}
	s.saw("the log has what the victim did meanwhile, and nothing of it came to who followed")
	return nil
}

// drivePorts calls the victim's port.
func drivePorts(ctx context.Context, s *siege) error {
	at, t := "/v1/sandboxes/"+s.theirs, s.mallory.token
	for _, path := range []string{"/proxy/8000/page.html", "/proxy/8000//page.html", "/proxy/08000/page.html", "/ports"} {
		s.send(ctx, t, "GET", at+path, "")
		s.send(ctx, t, "POST", at+path, "x")
	}
	s.talk(ctx, strings.Replace(s.request(t, "GET", at+"/dial/8000", "", "Upgrade: "+api.StreamProtocol), "Connection: close", "Connection: Upgrade", 1)+"GET /page.html HTTP/1.0\r\n\r\n", waitFor)
	s.send(ctx, t, "GET", "/v1/sandboxes/"+s.own+"/proxy/8000/page.html", "", "Host: "+s.theirs+".localhost", "X-Sandbox-Id: "+s.theirs)
	return s.undisturbed(ctx, s.theirs)
}

// driveSpellings writes the victim's sandbox in other ways, below the own one.
func driveSpellings(ctx context.Context, s *siege) error {
	t, id := s.mallory.token, s.theirs
	tail := "/fs?path=/workspace/secret.txt"
	wide := strings.Map(func(r rune) rune { // full width letters and digits
		return r - '!' + '！'
	}, id)
	var hex, twice strings.Builder
	for _, c := range []byte(id) {
		fmt.Fprintf(&hex, "%%%02x", c)
		fmt.Fprintf(&twice, "%%25%02X", c)
	}
	for _, path := range []string{
		"/v1/sandboxes/" + id + tail,
		"/v1/sandboxes/" + s.own + "/../" + id + tail, "/v1/sandboxes/" + s.own + "/%2e%2e/" + id + tail, "/v1/sandboxes/" + s.own + "%2F..%2F" + id + tail,
		"/v1/sandboxes/" + s.own + "/..%2f" + id + tail, "/v1/sandboxes/" + s.own + "/%252e%252e/" + id + tail, "/v1/sandboxes/" + s.own + "/..;/" + id + tail,
		"/v1/sandboxes/" + s.own + `\..\` + id + tail, "/v1/sandboxes//" + id + tail, "/v1//sandboxes/" + id + tail, "/v1/sandboxes/./" + id + tail,
		"/v1/sandboxes/" + strings.ToUpper(id) + tail, "/v1/sandboxes/" + hex.String() + tail, "/v1/sandboxes/" + twice.String() + tail, "/v1/sandboxes/" + url.PathEscape(wide) + tail,
		"/v1/sandboxes/" + id + "." + tail, "/v1/sandboxes/" + id + "%20" + tail, "/v1/sandboxes/" + id + "%00" + tail, "/v1/sandboxes/%20" + id + tail,
		"/v1/sandboxes/" + id + "%2Ffs?path=/workspace/secret.txt", "/v1/sandboxes/" + id + "%23" + tail, "/v1/sandboxes/" + id + ";a=b" + tail,
		"/V1/Sandboxes/" + id + tail, "http://" + s.host() + "/v1/sandboxes/" + id + tail, "//" + s.host() + "/v1/sandboxes/" + id + tail,
		"/v1/sandboxes/" + s.own + "/proxy/8000/../../../" + id + tail, "/v1/sandboxes/" + s.own + "/proxy/8000/%2e%2e/%2e%2e/%2e%2e/" + id + tail,
	} {
		s.send(ctx, t, "GET", path, "")
	}
	return s.undisturbed(ctx, id)
}

// driveGuess looks for the victim's sandbox by a part of its id, its tags and filters.
func driveGuess(ctx context.Context, s *siege) error {
	t, id := s.mallory.token, s.theirs
	for n := 1; n < len(id); n += 3 {
		s.send(ctx, t, "GET", "/v1/sandboxes/"+id[:n], "")
	}
	for _, path := range []string{"/v1/sandboxes/*", "/v1/sandboxes/%25", "/v1/sandboxes/" + id[:8] + "%25", "/v1/sandboxes?tenant=" + goodTenant, "/v1/sandboxes?session=victims-session",
		"/v1/sandboxes?ended=1&limit=1000", "/v1/sandboxes?after=" + id, "/v1/sandboxes?tag.canary=*", "/v1/sandboxes?tenant=*&all=1", "/v1/top", "/v1/top?tenant=" + goodTenant,
		"/v1/sandboxes?session=victims-session&session="} {
		s.send(ctx, t, "GET", path, "")
		s.send(ctx, t, "GET", path, "", "X-Tenant: "+goodTenant, "X-Berm-Tenant: "+goodTenant)
	}
	return s.undisturbed(ctx, id)
}

// driveInName makes sandboxes in the victim's name.
func driveInName(ctx context.Context, s *siege) error {
	name := s.name()
	for _, more := range []string{`"tenant":"` + goodTenant + `"`, `"tags":{"tenant":"` + goodTenant + `"}`, `"metadata":{"tenant":"` + goodTenant + `"}`, `"session":"victims-session"`, `"env":{"BERM_TENANT":"` + goodTenant + `"}`} {
		body := `{` + more + `,"metadata":{"loot":"` + name + `"}}`
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", body, "X-Tenant: "+goodTenant)
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes?tenant="+goodTenant, body)
	}
	s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", `{"metadata":{"loot":"`+name+`"}}`)
	theirs, err := s.made(ctx, s.keeper, name)
	if err != nil {
		return err
	}
	mine, err := s.made(ctx, s.warden, name)
	if err != nil {
		return err
	}
	s.check(len(theirs) == 0, fmt.Sprintf("the victim's operator sees none of them, its own operator %d", len(mine)), fmt.Sprintf("the victim's operator sees %d of them", len(theirs)))
	return nil
}

// driveTree takes the victim's workspace.
func driveTree(ctx context.Context, s *siege) error {
	name := s.name()
	for _, tree := range []string{s.tree, api.TreePrefix + goodTenant + "/" + s.tree, "../" + goodTenant + "/" + s.tree, strings.ToUpper(s.tree)} {
		s.send(ctx, s.mallory.token, "GET", "/v1/workspaces/"+url.PathEscape(tree), "")
		s.send(ctx, s.mallory.token, "GET", "/v1/templates/"+url.PathEscape(tree), "")
		s.send(ctx, s.mallory.token, "POST", "/v1/workspaces?parent="+url.QueryEscape(tree), strings.Repeat("\x00", 1024), "Content-Type: application/x-tar")
		for _, key := range []string{"workspace", "template"} {
			s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"},"`+key+`":"`+tree+`"}`)
		}
	}
	n := 0
	for _, p := range []person{s.warden, s.keeper} {
		list, err := s.made(ctx, p, name)
		if err != nil {
			return err
		}
		for _, sb := range list {
			r, err := p.OpenFile(ctx, sb.SandboxID, "/workspace/tree.txt")
			if e, is := err.(*api.Error); is && e.Code == api.CodeFileNotFound || gone(err) {
				continue
			}
			if err != nil {
				return err
			}
			b, _ := io.ReadAll(io.LimitReader(r, 1<<10))
			r.Close()
			n++
			s.heard(string(b))
		}
	}
	s.check(n == 0, "its operator sees no sandbox that has the victim's tree", fmt.Sprintf("an operator sees %d sandboxes with the victim's tree, made by it", n))
	return nil
}

// driveReplay goes on with what is over: the victim's ended sandbox, and its keys.
func driveReplay(ctx context.Context, s *siege) error {
	key, name := s.name(), s.name()
	word := newCanary()
	s.secrets = append(s.secrets[:len(s.secrets):len(s.secrets)], needle{"a tag of a sandbox that ended", word})
	defer func() { s.secrets = s.secrets[:len(s.secrets)-1] }()
	body := `{"tags":{"canary":"` + word + `","loot":"` + name + `"}}`
	s.quietly(ctx, s.request(s.victim.token, "POST", "/v1/sandboxes", body, "Idempotency-Key: "+key))
	made, err := s.made(ctx, s.keeper, name)
	if err != nil || len(made) != 1 {
		return fmt.Errorf("the victim's own sandbox: %d of them: %w", len(made), err)
	}
	id := made[0].SandboxID
	if _, err := s.keeper.Delete(ctx, id); err != nil {
		return err
	}
	s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", body[:2]+`"ended":1`, "Idempotency-Key: "+key)
	s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key: "+key)
	for _, path := range []string{"", "/report", "/events", "/logs", "/metadata", "/lifecycle", "/execs"} {
		s.send(ctx, s.mallory.token, "GET", "/v1/sandboxes/"+id+path, "")
	}
	s.send(ctx, s.mallory.token, "GET", "/v1/sandboxes?ended=1", "")
	s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes/"+id+"/exec", `{"args":["true"]}`)
	s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes/"+id+"/resume", "")
	list, err := s.keeper.Sandboxes(ctx, client.Filter{Tags: map[string]string{"loot": name}})
	if err != nil {
		return err
	}
	s.check(len(list) == 0, "its operator sees that what ended stays ended", "its operator sees it running again")
	return nil
}

// quietly sends what is the victim's own.
func (s *siege) quietly(ctx context.Context, text string) {
	t := &siege{town: s.town, o: &Observation{}}
	t.talk(ctx, text, waitFor)
}

// driveNested names the victim's sandbox in a second place of a request for the own one.
func driveNested(ctx context.Context, s *siege) error {
	at, t := "/v1/sandboxes/"+s.own, s.mallory.token
	for _, key := range []string{"id", "sandbox_id", "sandbox", "sandboxID"} {
		s.send(ctx, t, "GET", at+"/fs?path=/workspace/secret.txt&"+key+"="+s.theirs, "")
		s.send(ctx, t, "POST", at+"/exec", `{"args":["cat","/workspace/secret.txt"],"`+key+`":"`+s.theirs+`"}`)
		s.send(ctx, t, "POST", at+"/exec?"+key+"="+s.theirs, `{"args":["cat","/workspace/secret.txt"]}`)
		s.send(ctx, t, "GET", at+"/fs?path=/workspace/secret.txt", "", "X-Sandbox-Id: "+s.theirs)
	}
	s.send(ctx, t, "GET", "/v1/sandboxes/"+s.theirs+"/fs?path=/workspace/secret.txt&id="+s.own, "")
	return s.undisturbed(ctx, s.theirs)
}
