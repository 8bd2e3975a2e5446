package attack

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// Attacks on the daemon's door: whoever stands before it, with a token or none.

// drivePage asks as a page of another site does, in a browser that has a token.
func drivePage(ctx context.Context, s *siege) error {
	name := s.name()
	body := `{"tags":{"loot":"` + name + `"}}`
	for _, origin := range []string{"https://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1.evil.example", "http://" + s.host() + ".evil.example",
		"http://" + s.host() + "@evil.example", "file://", "http://127.0.0.1:1", "https://" + s.host() + "/"} {
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", body, "Origin: "+origin, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Content-Type: text/plain")
		s.send(ctx, s.mallory.token, "OPTIONS", "/v1/sandboxes", "", "Origin: "+origin, "Access-Control-Request-Method: POST")
	}
	return s.unstarted(ctx, name)
}

// driveRebind asks by names that lead here without being ours.
func driveRebind(ctx context.Context, s *siege) error {
	name := s.name()
	body := `{"tags":{"loot":"` + name + `"}}`
	for _, host := range []string{"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "0.0.0.0", "169.254.169.254", "evil.example#127.0.0.1", ""} {
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", body, "Host: "+host)
		s.send(ctx, s.mallory.token, "POST", "/v1/sandboxes", body, "Host: "+host, "X-Forwarded-Host: "+s.host())
	}
	return s.unstarted(ctx, name)
}

// drivePipeline sends requests without a token behind one with a token, and
// hides them in bodies of which two readers may see two ends.
func drivePipeline(ctx context.Context, s *siege) error {
	name := s.name()
	hidden := strings.Replace(s.request("", "POST", "/v1/sandboxes", `{"tags":{"loot":"`+name+`"}}`), "Connection: close\r\n", "", 1)
	first := strings.Replace(s.request(s.mallory.token, "GET", "/v1/me", ""), "Connection: close\r\n", "", 1)
	post := func(headers, body string) string {
		return "POST /v1/sandboxes/" + s.own + "/fs/dir?path=/workspace/piped HTTP/1.1\r\nHost: " + s.host() + "\r\nAuthorization: Bearer " + s.mallory.token + "\r\n" + headers + "\r\n\r\n" + body
	}
	for _, text := range []string{
		first + hidden, hidden + first,
		post(fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked", 5+len(hidden)), "0\r\n\r\n"+hidden),
		post(fmt.Sprintf("Content-Length: 4\r\nContent-Length: %d", len(hidden)), "0\r\n\r\n"+hidden),
		post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "0\r\n\r\n"+hidden), post("Transfer-Encoding : chunked\r\nContent-Length: 0", "0\r\n\r\n"+hidden),
		post("Transfer-Encoding: xchunked\r\nContent-Length: 5", "0\r\n\r\n"+hidden), post("Content-Length: +0", hidden), post("Content-Length: 0\r\n ,9", hidden),
		strings.ReplaceAll(first, "\r\n", "\n") + hidden, "GET /healthz HTTP/1.1\r\nHost: " + s.host() + "\r\nContent-Length: 0\r\n\r\n" + hidden,
	} {
		s.talk(ctx, text, 500*time.Millisecond)
	}
	return s.unstarted(ctx, name)
}

// driveOther calls the daemon's socket and reads its token as another user of the host.
func driveOther(ctx context.Context, s *siege) error {
	if os.Geteuid() != 0 {
		s.o.Unfit = "only root can become another user here"
		return nil
	}
	type got struct {
		answer string
		errs   []string
		failed error // to become another user
	}
	told := make(chan got, 1)
	go func() {
		var g got
		defer func() { told <- g }()
		runtime.LockOSThread() // for good: the thread is somebody else from here on, and ends with this
		for _, call := range []struct{ nr, a, b, c uintptr }{
			{syscall.SYS_SETGROUPS, 0, 0, 0}, {syscall.SYS_SETRESGID, 65534, 65534, 65534}, {syscall.SYS_SETRESUID, 65534, 65534, 65534},
		} {
			if _, _, e := syscall.RawSyscall(call.nr, call.a, call.b, call.c); e != 0 {
				g.failed = fmt.Errorf("become another user: %w", e)
				return
			}
		}
		for _, dir := range []string{s.StateDir, fmt.Sprintf("/proc/%d/cwd", s.PID), fmt.Sprintf("/proc/%d/root%s", s.PID, s.StateDir)} {
			if b, err := readAs(filepath.Join(dir, "token")); err == nil {
				g.answer += b
			} else {
				g.errs = append(g.errs, err.Error())
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, "berm.sock")}); err == nil {
				g.answer += "the socket was open to it\n"
			} else {
				g.errs = append(g.errs, err.Error())
			}
			syscall.Close(fd)
		}
	}()
	g := <-told
	if g.failed != nil {
		return g.failed
	}
	if len(g.errs)+len(g.answer) == 0 {
		return fmt.Errorf("nothing was tried")
	}
	if strings.Contains(g.answer, s.Token) {
		s.breach("another user of the host has read the admin's token")
	}
	if strings.Contains(g.answer, "socket") {
		s.breach("another user of the host was connected to the daemon's socket")
	}
	if g.answer == "" {
		s.saw("another user of the host got neither the token nor a connection: %s", strings.Join(union(nil, g.errs), ", "))
	}
	return nil
}

// readAs reads a file by system calls of this thread alone.
func readAs(path string) (string, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer syscall.Close(fd)
	b := make([]byte, 256)
	n, err := syscall.Read(fd, b)
	return string(b[:max(n, 0)]), err
}

// driveFlood keeps the daemon busy with one tenant's requests, with half
// requests and with large ones, while another works.
func driveFlood(ctx context.Context, s *siege) error {
	stop, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	var busy sync.WaitGroup
	for i := range 40 {
		busy.Go(func() {
			for stop.Err() == nil {
				switch i % 4 {
				case 0:
					s.talk(stop, s.request(s.mallory.token, "GET", "/v1/sandboxes?limit=1000", ""), time.Second)
				case 1:
					s.talk(stop, s.request(s.mallory.token, "POST", "/v1/sandboxes/"+s.own+"/exec", `{"args":["true"]}`), time.Second)
				case 2:
					s.talk(stop, "POST /v1/sandboxes HTTP/1.1\r\nHost: "+s.host()+"\r\nContent-Length: 100000\r\nAuthorization: Bearer "+s.mallory.token+"\r\n\r\n{", time.Second)
				default:
					s.talk(stop, s.request(s.mallory.token, "POST", "/v1/sandboxes", strings.Repeat("[", 2<<20)), time.Second)
				}
			}
		})
	}
	var took []time.Duration
	for stop.Err() == nil {
		began := time.Now()
		if _, err := s.victim.Get(ctx, s.theirs); err != nil {
			s.breach("the other tenant was refused meanwhile: %.200v", err)
			break
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	busy.Wait()
	middle, slowest := pace(took)
	s.check(len(took) > 5 && middle < 150*time.Millisecond, fmt.Sprintf("the other tenant asked %d times meanwhile, half of it was answered within %d ms, all within %d ms", len(took), middle.Milliseconds(), slowest.Milliseconds()),
		fmt.Sprintf("the other tenant was answered %d times meanwhile, half of it took more than %d ms", len(took), middle.Milliseconds()))
	return nil
}

// drivePaths reads the host's files by the file routes of the own sandbox.
func drivePaths(ctx context.Context, s *siege) error {
	secret := filepath.Join(s.StateDir, "open")
	word := newCanary()
	if err := os.Chmod(s.StateDir, 0o711); err != nil { // who the daemon has become may pass
		return err
	}
	defer os.Chmod(s.StateDir, 0o700)
	if err := os.WriteFile(secret, []byte(word), 0o644); err != nil {
		return err
	}
	defer os.Remove(secret)
	s.secrets = append(s.secrets[:len(s.secrets):len(s.secrets)], needle{"a file of the host", word})
	defer func() { s.secrets = s.secrets[:len(s.secrets)-1] }()
	s.mallory.Exec(ctx, s.own, api.ExecRequest{Args: []string{"ln", "-sf", secret, "/workspace/link"}}, client.Stdio{})
	at := "/v1/sandboxes/" + s.own
	for _, path := range []string{secret, "../../../../.." + secret, "/workspace/link", "/proc/1/root" + secret, "/proc/self/root/../../.." + secret, "%2e%2e%2f%2e%2e%2f" + secret, "//" + secret, secret + "%00"} {
		for _, route := range []string{"/fs?path=", "/files?path=", "/archive?path=", "/list?path=", "/glob?pattern="} {
			s.send(ctx, s.mallory.token, "GET", at+route+path, "")
		}
	}
	s.saw("the file that its path leads to on the host came in none of the answers")
	return nil
}

// driveLoopback calls a server on the host's loopback as a port of the own sandbox.
func driveLoopback(ctx context.Context, s *siege) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	called := make(chan bool, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case called <- true:
			default:
			}
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	at := "/v1/sandboxes/" + s.own
	for _, path := range []string{port + "/", "127.0.0.1:" + port + "/", "%31%32%37.0.0.1:" + port + "/", port + "@127.0.0.1:" + port + "/", "localhost%3a" + port + "/", port + "/http://127.0.0.1:" + port + "/"} {
		s.send(ctx, s.mallory.token, "GET", at+"/proxy/"+path, "", "X-Forwarded-Host: 127.0.0.1:"+port)
		s.talk(ctx, strings.Replace(s.request(s.mallory.token, "GET", at+"/dial/"+strings.TrimSuffix(path, "/"), "", "Upgrade: "+api.StreamProtocol), "Connection: close", "Connection: Upgrade", 1), time.Second)
	}
	n := len(called)
	s.check(n == 0, "the server on the host's loopback was not called", fmt.Sprintf("the server on the host's loopback was called %d times", n))
	return nil
}

// driveRecord is refused in every way that there is, and looks for one that nobody sees.
func driveRecord(ctx context.Context, s *siege) error {
	t := s.mallory.token
	s.send(ctx, t, "GET", "/v1/tokens", "")
	s.send(ctx, t, "PATCH", "/v1/sandboxes/"+s.own+"/egress", `{"egress":[{"allow":"evil.example:443"}]}`)
	s.send(ctx, t, "POST", "/v1/sandboxes", `{"limits":{"pids":4096}}`)
	s.send(ctx, t, "GET", "/v1/sandboxes/"+s.theirs+"/report", "")
	s.send(ctx, t, "GET", "/v1/workspaces", "", "Origin: https://evil.example") // where no other case is refused so: like refusals are counted together
	s.send(ctx, t+"0", "GET", "/v1/routes", "")
	return s.must(ctx, api.CodeTokenForbidden, api.CodePolicyWider, api.CodePolicyCeiling, api.CodeSandboxNotFound, api.CodeOriginForbidden, api.CodeTokenInvalid)
}

// must has the refusals in the log that the admin exports, which is whole.
func (s *siege) must(ctx context.Context, due ...string) error {
	if err := s.records(ctx, due); err != nil {
		return err
	}
	lost := missing(due, s.o.Denied)
	s.check(len(lost) == 0, fmt.Sprintf("the log has each of %d kinds of refusals", len(due)), "the log does not have a refusal: "+strings.Join(lost, ", "))
	head, err := s.admin.AuditHead(ctx)
	if err != nil {
		return err
	}
	v, err := s.admin.AuditVerify(ctx, &head)
	if err != nil {
		return err
	}
	s.check(v.OK && v.LastSeq >= s.from, fmt.Sprintf("the log is whole up to its event %d", v.LastSeq), "the log is not whole: "+v.Problem)
	return nil
}

// driveErase tries to take its refusal out of the log, and to write into it.
func driveErase(ctx context.Context, s *siege) error {
	t := s.mallory.token
	s.send(ctx, t, "GET", "/v1/audit/head", "")
	for _, path := range []string{"/v1/events", "/v1/events?after=0", "/v1/audit/export", "/v1/audit/head", "/v1/audit/report/" + s.own, "/v1/sandboxes/" + s.own + "/events"} {
		for _, method := range []string{"DELETE", "PUT", "PATCH", "POST"} {
			s.send(ctx, t, method, path, `{"type":"audit.broken","seq":1,"hash":""}`)
		}
	}
	forged := `x\",\"type\":\"audit.removed\",\"actor\":\"system`
	s.send(ctx, t, "POST", "/v1/sandboxes", `{"tags":{"loot":"`+forged+`","type":"token.created"},"session":"s\n{\"prev\":\"\"}"}`)
	s.send(ctx, t, "POST", "/v1/sandboxes/"+s.own+"/exec", `{"args":["true","\n{\"prev\":\"0\",\"event\":{\"type\":\"audit.broken\"},\"hash\":\"0\"}"]}`, "X-Request-Id: 1\",\"type\":\"audit.removed")
	if err := s.must(ctx, api.CodeTokenForbidden); err != nil {
		return err
	}
	events, err := s.events(ctx, api.EventAuditBroken, api.EventAuditRemoved, api.EventAuditRepaired)
	if err != nil {
		return err
	}
	s.check(len(events) == 0, "the log has no event that it wrote", fmt.Sprintf("the log has %d events that it wrote", len(events)))
	return nil
}

// driveBury is refused very often, so that nobody finds the one that matters.
func driveBury(ctx context.Context, s *siege) error {
	crowd(1500, 16, func(i int) {
		s.talk(ctx, s.request(s.mallory.token, "GET", []string{"/v1/tokens", "/v1/audit/head", "/v1/tokens?n=" + fmt.Sprint(i), "/v1/sandboxes/" + s.theirs + "?n=" + fmt.Sprint(i)}[i%4], ""), 5*time.Second)
	})
	s.send(ctx, s.mallory.token, "PATCH", "/v1/sandboxes/"+s.own+"/egress", `{"egress":[{"allow":"evil.example:443"}]}`)
	if err := s.must(ctx, api.CodeTokenForbidden, api.CodeSandboxNotFound, api.CodePolicyWider); err != nil {
		return err
	}
	events, err := s.events(ctx, api.EventDenied)
	if err != nil {
		return err
	}
	n := len(slices.DeleteFunc(events, func(e api.Event) bool { return e.Actor != s.mallory.info.TokenID }))
	s.check(n <= 20, fmt.Sprintf("1501 refusals are %d events", n), fmt.Sprintf("1501 refusals are %d events: what matters is buried", n))
	return nil
}
