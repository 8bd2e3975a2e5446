package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// Attacks of the family api come by the API of a daemon, with the tokens that
// their makers might have: of an agent, or none. What they got for an answer
// proves nothing. It is judged by what the people who run the place see: an
// operator of each tenant and the node's admin, in their lists, in the log, in
// the sandbox; and by canaries of the other tenant in whatever was answered.

// A town is a daemon and who lives there.
type town struct {
	*Daemon
	admin  *client.Client
	owner  person // an agent with a ceiling
	warden person // the operator of the same tenant
	victim person // an agent of another tenant
	keeper person // the operator of that one

	own    string // the first one's sandbox
	theirs string // the victim's
	served string // its command that serves a port and talks
	tree   string // the victim's workspace

	secrets []needle // of the victim
	times   int      // how often a case has asked for a name
}

// A person is a token and a client with it.
type person struct {
	token string
	info  api.Token
	*client.Client
}

const (
	badTenant  = "mallory"
	goodTenant = "victim"
)

// narrow is the ceiling of the tokens that attack.
var narrow = &api.Policy{
	Limits:             api.Limits{MemoryBytes: 256 << 20, TimeoutSeconds: 5, Pids: 64, DiskBytes: 64 << 20, CPUs: 1, OutputBytes: 1 << 20},
	TTLSeconds:         600,
	IdleTimeoutSeconds: 300,
	Egress:             []byte(`[{"allow":"narrow.example:443"}]`),
}

// found starts the daemon and lets everybody move in, once.
func (r *run) found(ctx context.Context) (_ *town, err error) {
	if r.town != nil || r.noTown != nil || r.opt.Serve == nil {
		return r.town, r.noTown
	}
	defer func() { r.noTown = err }()
	d, err := r.opt.Serve(ctx, r.stateDir, slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(r.planting.vars, name) // what is planted there is no setting
	}))
	if err != nil {
		return nil, err
	}
	t := &town{Daemon: d}
	if err := t.settle(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("settle in the daemon: %w", err), d.Close())
	}
	r.town = t
	return t, nil
}

// abandon ends the daemon, if there is one.
func (r *run) abandon() error {
	if r.town == nil {
		return nil
	}
	defer func() { r.town = nil }()
	return r.town.Close()
}

// settle makes tokens and sandboxes.
func (t *town) settle(ctx context.Context) error {
	t.admin = t.Client(t.Token)
	var err error
	for _, p := range []struct {
		who          *person
		tenant, role string
		ceiling      *api.Policy
	}{
		{&t.owner, badTenant, api.RoleAgent, narrow}, {&t.warden, badTenant, api.RoleOperator, nil},
		{&t.victim, goodTenant, api.RoleAgent, nil}, {&t.keeper, goodTenant, api.RoleOperator, nil},
	} {
		if *p.who, err = t.enrol(ctx, p.tenant, p.role, 0, p.ceiling); err != nil {
			return err
		}
	}
	if t.own, err = t.box(ctx, t.owner, api.CreateRequest{Egress: []byte("[]")}); err != nil {
		return err
	}
	word := func(name string) string {
		v := newCanary()
		t.secrets = append(t.secrets, needle{name, v})
		return v
	}
	t.theirs, err = t.box(ctx, t.victim, api.CreateRequest{Tags: map[string]string{"canary": word("a tag of another tenant's sandbox")}, Session: "victims-session",
		Env: map[string]string{"CANARY": word("the environment of another tenant's sandbox")}, TTLSeconds: 3600, IdleTimeoutSeconds: 3600})
	if err != nil {
		return err
	}
	if _, err := t.victim.WriteFile(ctx, t.theirs, "/workspace/secret.txt", 0o600, strings.NewReader(word("a file of another tenant's sandbox")+"\n")); err != nil {
		return err
	}
	program := fmt.Sprintf("import http.server,sys\nprint(%q,flush=True)\nopen('page.html','w').write(%q)\nhttp.server.ThreadingHTTPServer(('127.0.0.1',8000),http.server.SimpleHTTPRequestHandler).serve_forever()\n",
		word("the output of another tenant's command"), word("a page that another tenant serves"))
	x, err := t.victim.Spawn(ctx, t.theirs, api.ExecRequest{Args: []string{"python3", "-c", program}, Detach: true})
	if err != nil {
		return err
	}
	t.served = x.ExecID
	archive, err := archiveOf(File{"tree.txt", []byte(word("a workspace of another tenant") + "\n")})
	if err != nil {
		return err
	}
	tree, err := t.victim.PutWorkspace(ctx, "", archive)
	t.tree = tree.WorkspaceID
	return err
}

// without looks at the host, but not at the processes of the two sandboxes that
// stay: what runs in them may have more or fewer.
func (t *town) without(stateDir string) view {
	v := look(stateDir)
	if t == nil {
		return v
	}
	v["process"] = slices.DeleteFunc(v["process"], func(line string) bool {
		pid, _, _ := strings.Cut(line, " ")
		whose := readText("/proc/"+pid+"/cgroup") + readText("/proc/"+pid+"/cmdline")
		return strings.Contains(whose, t.own) || strings.Contains(whose, t.theirs)
	})
	return v
}

// enrol makes a token.
func (t *town) enrol(ctx context.Context, tenant, role string, seconds float64, ceiling *api.Policy) (person, error) {
	n, err := t.admin.CreateToken(ctx, api.TokenRequest{Tenant: tenant, Role: role, TTLSeconds: seconds, Ceiling: ceiling})
	if err != nil {
		return person{}, fmt.Errorf("make a token: %w", err)
	}
	return person{n.Token, n.Info, t.Client(n.Token)}, nil
}

// box makes a sandbox for somebody.
func (t *town) box(ctx context.Context, p person, req api.CreateRequest) (string, error) {
	sb, err := p.Create(ctx, req)
	if err != nil {
		return "", fmt.Errorf("a sandbox for the tenant %s: %w", p.info.Tenant, err)
	}
	return sb.SandboxID, nil
}

// A siege is one attack on a town.
type siege struct {
	*town
	o *Observation
	// Who attacks: an agent with a ceiling, and one of the tenant that runs the
	// node. Their tokens are of this attack alone, since refusals of one are
	// counted together.
	mallory, insider person

	from uint64 // where the log was when it began

	mu sync.Mutex // of what is heard

	sent, answered atomic.Int64 // requests, and those that came to more than "later"
}

// besiege makes a driver of an attack by the API.
func besiege(attack func(ctx context.Context, s *siege) error) Driver {
	return func(ctx context.Context, d *Drive) error {
		t := d.run.town
		if t == nil {
			d.Seen.Unfit = "whoever attacks has no daemon"
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		head, err := t.admin.AuditHead(ctx)
		if err != nil {
			return fmt.Errorf("the log: %w", err)
		}
		s := &siege{town: t, o: d.Seen, from: head.Seq}
		if s.mallory, err = s.enrol(ctx, badTenant, api.RoleAgent, 0, narrow); err == nil {
			s.insider, err = s.enrol(ctx, api.DefaultTenant, api.RoleAgent, 0, narrow)
		}
		if err != nil {
			return err
		}
		d.Seen.Began = true
		began := time.Now()
		err = attack(ctx, s)
		d.Seen.Elapsed = time.Since(began)
		if n := s.sent.Load(); err == nil && n > 0 && s.answered.Load() == 0 {
			err = fmt.Errorf("none of %d requests was answered: that they got nothing proves nothing", n)
		}
		d.Seen.Ended = err == nil
		if err == nil {
			err = s.records(ctx, d.Case.Denied)
		}
		if aerr := s.clear(context.WithoutCancel(ctx)); err == nil {
			err = aerr
		}
		return err
	}
}

// breach notes an effect that was seen from outside.
func (s *siege) breach(format string, args ...any) {
	s.o.Effects = append(s.o.Effects, fmt.Sprintf(format, args...))
}

// saw notes what was looked at and was in order.
func (s *siege) saw(format string, args ...any) {
	s.o.Outcome = append(s.o.Outcome, fmt.Sprintf(format, args...))
}

// check notes one or the other.
func (s *siege) check(holds bool, what, otherwise string) {
	if holds {
		s.saw("%s", what)
	} else {
		s.breach("%s", otherwise)
	}
}

// name is one that nobody has used, for what an attack would make.
func (s *siege) name() string {
	s.times++
	return fmt.Sprintf("loot-%d-%d", os.Getpid(), s.times)
}

// events are what the admin sees in the log since the attack began.
func (s *siege) events(ctx context.Context, types ...string) ([]api.Event, error) {
	return s.audit(ctx, s.from, types)
}

// counted is how long a refusal may take to be in the log: those that are like one
// before are counted together for ten seconds.
const counted = 12 * time.Second

// records looks for the refusals that are due: what a token did is on record for
// its tenant, or for the one that it reached for.
func (s *siege) records(ctx context.Context, due []string) error {
	for end := time.Now().Add(counted); ; time.Sleep(50 * time.Millisecond) {
		events, err := s.events(ctx, api.EventDenied)
		if err != nil {
			return err
		}
		for _, e := range events {
			var about struct {
				Code string `json:"code"`
			}
			if !s.honest(e.Actor) && decodeInto(e.Data, &about) {
				s.o.Denied = union(s.o.Denied, []string{about.Code})
			}
		}
		if len(missing(due, s.o.Denied)) == 0 || time.Now().After(end) {
			return nil
		}
	}
}

// honest says whether a token is one of those who live here.
func (s *siege) honest(id string) bool {
	return slices.ContainsFunc([]person{s.owner, s.warden, s.victim, s.keeper}, func(p person) bool { return p.info.TokenID == id })
}

// clear ends what the attack has made, and says whether the town is as before.
func (s *siege) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, p := range []person{s.warden, s.keeper, {"", api.Token{Tenant: api.DefaultTenant}, s.admin}} {
		list, err := p.Sandboxes(ctx, client.Filter{})
		if err != nil {
			return fmt.Errorf("list sandboxes: %w", err)
		}
		for _, sb := range list {
			if sb.SandboxID == s.own || sb.SandboxID == s.theirs {
				continue
			}
			if _, err := p.Delete(ctx, sb.SandboxID); err != nil && !gone(err) {
				return fmt.Errorf("end what the attack has made: %w", err)
			}
		}
	}
	return nil
}

func gone(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && (e.Code == api.CodeSandboxNotFound || e.Code == api.CodeSandboxEnded)
}
