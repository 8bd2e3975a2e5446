// Package auth keeps the tokens: who may come in, as whom, and the most they
// can get. A token is 160 random bits and shown once; what is kept is its
// SHA-256, so whoever reads the state cannot use it.
//
// Every token belongs to a tenant. Admins of the default tenant are the node's:
// they make tokens for every tenant. An admin of another tenant makes, sees and
// revokes only that tenant's. What one makes or revokes is in the audit log
// before it has an effect.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

const (
	secretPrefix = "e2b_" // clients of E2B check for it
	secretHex    = 40
	prefixLen    = 12
	maxLabel     = 200
	maxTokens    = 1000 // of one tenant that still work
	// maxDead is how many of a tenant's tokens that no longer work stay in lists,
	// the newest, and keepDead for how long.
	maxDead  = 200
	keepDead = 30 * 24 * time.Hour
	// minTTL is the shortest life of a token with an end.
	minTTL = time.Second
	// The tokens of one tenant make so many others in a row, and then so many a second.
	makeBurst, makePerSecond = 100, 2
	// maxTTL is the longest life of a token with an end.
	maxTTL = 10 * 365 * 24 * time.Hour
	// FirstLabel is the label of the token that the first start makes.
	FirstLabel = "first start"
)

var tenantShape = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Identity is whom a token speaks for.
type Identity struct {
	TokenID string
	Tenant  string
	Role    string
	Ceiling *api.Policy // the most that a sandbox made with it can get; nil: the daemon's bounds
	Default *api.Policy // what it gets when the request says nothing; nil: closed
}

// Local is whoever holds the other end of the owner's own socket.
var Local = Identity{TokenID: "local", Tenant: api.DefaultTenant, Role: api.RoleAdmin}

// governs says whether an identity decides about the tokens of a tenant.
func (id Identity) governs(tenant string) bool {
	return id.Role == api.RoleAdmin && (id.Tenant == api.DefaultTenant || id.Tenant == tenant)
}

// A Bucket keeps one record per token; internal/store has it.
type Bucket interface {
	Put(key string, v any) error
	Delete(key string) error
	Each(f func(key string, value json.RawMessage) error) error
}

// entry is a token as it is kept.
type entry struct {
	api.Token
	Hash      string `json:"sha256"` // of the token, hex
	RevokedAt string `json:"revoked_at,omitempty"`

	expires time.Time     // zero: never
	gone    chan struct{} // closed when it is revoked
}

// dead is when it stopped to work; zero: it works.
func (e *entry) dead(now time.Time) time.Time {
	if e.Revoked {
		at, _ := time.Parse(time.RFC3339Nano, e.RevokedAt)
		if at.IsZero() {
			at = time.Unix(1, 0)
		}
		return at
	}
	if !e.expires.IsZero() && !now.Before(e.expires) {
		return e.expires
	}
	return time.Time{}
}

// Tokens are the tokens of a node.
type Tokens struct {
	bucket Bucket
	record func(context.Context, ...api.Event) error
	now    func() time.Time

	change sync.Mutex // held by whoever creates or revokes
	mu     sync.RWMutex
	byHash map[[sha256.Size]byte]*entry
	byID   map[string]*entry
	made   map[string]pace // by the tenant that makes them; with change
}

// A pace is how many tokens a tenant may make now.
type pace struct {
	left float64
	at   time.Time
}

// may says whether a tenant may make one more. With change.
func (t *Tokens) may(tenant string, now time.Time) bool {
	p, ok := t.made[tenant]
	if !ok {
		p = pace{makeBurst, now}
	}
	p.left = min(makeBurst, p.left+max(0, now.Sub(p.at).Seconds())*makePerSecond)
	p.at = now
	ok = p.left >= 1
	if ok {
		p.left--
	}
	t.made[tenant] = p
	return ok
}

// Open reads the tokens from their bucket. record puts an event on disk; every
// creation and revocation goes through it before it takes effect.
func Open(b Bucket, record func(context.Context, ...api.Event) error) (*Tokens, error) {
	t := &Tokens{bucket: b, record: record, now: time.Now, byHash: map[[sha256.Size]byte]*entry{}, byID: map[string]*entry{}, made: map[string]pace{}}
	err := b.Each(func(key string, value json.RawMessage) error {
		var e entry
		if err := json.Unmarshal(value, &e); err != nil || e.TokenID != key {
			return fmt.Errorf("the record of token %s is damaged", key)
		}
		return t.take(&e)
	})
	if err != nil {
		return nil, err
	}
	t.purge()
	return t, nil
}

// take makes a token known.
func (t *Tokens) take(e *entry) error {
	var h [sha256.Size]byte
	raw, err := hex.DecodeString(e.Hash)
	if err == nil && e.ExpiresAt != "" {
		e.expires, err = time.Parse(time.RFC3339Nano, e.ExpiresAt)
	}
	if err != nil || copy(h[:], raw) != len(h) || len(raw) != len(h) || api.Rank(e.Role) > api.Rank(api.RoleAdmin) || e.Role == "" {
		return fmt.Errorf("the record of token %s is damaged", e.TokenID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.gone == nil {
		e.gone = make(chan struct{})
	}
	t.byHash[h], t.byID[e.TokenID] = e, e
	return nil
}

// purge forgets what has not worked for long, and of each tenant the oldest
// beyond what is kept. With change, or before anybody else knows t.
func (t *Tokens) purge() {
	now := t.now()
	dead := map[string][]*entry{}
	for _, e := range t.entries() {
		if !e.dead(now).IsZero() {
			dead[e.Tenant] = append(dead[e.Tenant], e)
		}
	}
	for _, list := range dead {
		slices.SortFunc(list, func(a, b *entry) int { return b.dead(now).Compare(a.dead(now)) })
		for i, e := range list {
			if i < maxDead && now.Sub(e.dead(now)) <= keepDead || t.bucket.Delete(e.TokenID) != nil {
				continue
			}
			t.drop(e)
		}
	}
}

// drop makes a token unknown.
func (t *Tokens) drop(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, e.TokenID)
	for h, x := range t.byHash {
		if x.TokenID == e.TokenID {
			delete(t.byHash, h)
			return
		}
	}
}

// Check says whom a token speaks for. Unknown, revoked and expired ones are
// refused alike, with api.CodeTokenInvalid; "" with api.CodeTokenMissing.
func (t *Tokens) Check(token string) (Identity, error) {
	if token == "" {
		return Identity{}, refuse(api.CodeTokenMissing, "no token was sent", "send Authorization: Bearer TOKEN, or set BERM_TOKEN")
	}
	// The look-up is by the hash of what was sent: how long it takes says
	// nothing of how much of a token was right.
	h := sha256.Sum256([]byte(token))
	t.mu.RLock()
	e := t.byHash[h]
	t.mu.RUnlock()
	if e == nil || subtle.ConstantTimeCompare([]byte(hex.EncodeToString(h[:])), []byte(e.Hash)) != 1 || !e.dead(t.now()).IsZero() {
		return Identity{}, refuse(api.CodeTokenInvalid, "the token is not valid", "berm token create makes a new one; the first is in the file token of the state directory")
	}
	return Identity{TokenID: e.TokenID, Tenant: e.Tenant, Role: e.Role, Ceiling: e.Ceiling, Default: e.Default}, nil
}

// Create makes a token in the name of by, with no more rights than by has.
func (t *Tokens) Create(ctx context.Context, by Identity, r api.TokenRequest) (api.NewToken, error) {
	if r.Tenant == "" {
		r.Tenant = by.Tenant
	}
	if err := check(by, r); err != nil {
		return api.NewToken{}, err
	}
	ceiling, err := within(by.Ceiling, r.Ceiling)
	if err != nil {
		return api.NewToken{}, err
	}
	if r.Default != nil {
		if _, err := within(ceiling, r.Default); err != nil {
			return api.NewToken{}, err
		}
	}
	t.change.Lock()
	defer t.change.Unlock()
	now := t.now().UTC()
	if t.working(r.Tenant, now) >= maxTokens {
		return api.NewToken{}, refuse(api.CodeQuota, fmt.Sprintf("the tenant %s has %d tokens", r.Tenant, maxTokens), "berm token revoke TOKEN, for those that nobody uses")
	}
	if !t.may(by.Tenant, now) {
		return api.NewToken{}, &api.Error{Code: api.CodeRate, Message: "too many tokens are made at once", Hint: "one token serves many clients", RetryAfter: 1}
	}
	var raw [secretHex / 2]byte
	rand.Read(raw[:])
	secret := secretPrefix + hex.EncodeToString(raw[:])
	sum := sha256.Sum256([]byte(secret))
	e := &entry{Hash: hex.EncodeToString(sum[:]), Token: api.Token{
		TokenID: api.NewID(api.KindToken), Prefix: secret[:prefixLen], Label: r.Label, Role: r.Role, Tenant: r.Tenant,
		CreatedAt: now.Format(time.RFC3339Nano), Ceiling: ceiling, Default: r.Default,
	}}
	if r.TTLSeconds > 0 {
		e.ExpiresAt = now.Add(time.Duration(r.TTLSeconds * float64(time.Second))).Format(time.RFC3339Nano)
	}
	if err := t.tell(ctx, by, api.EventTokenCreated, e); err != nil {
		return api.NewToken{}, err
	}
	if err := t.bucket.Put(e.TokenID, e); err != nil {
		return api.NewToken{}, err
	}
	if err := t.take(e); err != nil {
		return api.NewToken{}, err
	}
	t.purge()
	return api.NewToken{Token: secret, Info: e.Token}, nil
}

func (t *Tokens) working(tenant string, now time.Time) (n int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, e := range t.byID {
		if e.Tenant == tenant && e.dead(now).IsZero() {
			n++
		}
	}
	return n
}

// tell records what is about to happen to a token.
func (t *Tokens) tell(ctx context.Context, by Identity, kind string, e *entry) error {
	data, err := json.Marshal(e.Token)
	if err != nil {
		return err
	}
	return t.record(ctx, api.Event{Type: kind, Tenant: e.Tenant, Actor: by.TokenID, Data: data})
}

// check says what is wrong with a request, and whether by may make it.
func check(by Identity, r api.TokenRequest) error {
	bad := func(format string, args ...any) error {
		return refuse(api.CodeBadRequest, fmt.Sprintf(format, args...), "berm help token create")
	}
	switch {
	case r.Role == "" || api.Rank(r.Role) > api.Rank(api.RoleAdmin):
		return bad("a token's role is %s, %s or %s", api.RoleAgent, api.RoleOperator, api.RoleAdmin)
	case !tenantShape.MatchString(r.Tenant):
		return bad("a tenant's name is of a-z, 0-9, point, dash and underscore, 63 characters at most")
	case len(r.Label) > maxLabel || strings.ContainsFunc(r.Label, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\ufffd' }):
		return bad("a label has no control characters, and %d bytes at most", maxLabel)
	case math.IsNaN(r.TTLSeconds) || r.TTLSeconds != 0 && r.TTLSeconds < minTTL.Seconds() || r.TTLSeconds > maxTTL.Seconds():
		return bad("a token lives between 1 and %.0f seconds, or with 0 until it is revoked", maxTTL.Seconds())
	case !by.governs(r.Tenant):
		return refuse(api.CodeTokenForbidden, "this token makes no tokens for that tenant", "ask an admin of that tenant, or of the tenant "+api.DefaultTenant)
	}
	return nil
}

// Revoke ends a token, named by its id or its prefix. One that was revoked
// already, or is not by's to see, is not found.
func (t *Tokens) Revoke(ctx context.Context, by Identity, idOrPrefix string) error {
	t.change.Lock()
	defer t.change.Unlock()
	found, err := t.find(by, idOrPrefix)
	if err != nil {
		return err
	}
	next := *found
	next.Revoked, next.RevokedAt = true, t.now().UTC().Format(time.RFC3339Nano)
	if err := t.tell(ctx, by, api.EventTokenRevoked, &next); err != nil {
		return err
	}
	// It is on record, so it holds, even if the bucket cannot be written now: the
	// next start learns it from the log.
	_ = t.bucket.Put(next.TokenID, &next)
	if err := t.end(&next); err != nil {
		return err
	}
	t.purge()
	return nil
}

// end makes a revocation known.
func (t *Tokens) end(e *entry) error {
	if err := t.take(e); err != nil {
		return err
	}
	close(e.gone) // what was begun with it ends
	return nil
}

// Settle takes in an event of the log that the bucket may not know of: what was
// revoked there is revoked, though a crash or a full disk came between, or an
// older copy of the bucket was put back. An error says that the bucket still does
// not know.
func (t *Tokens) Settle(ev *api.Event) error {
	var said api.Token
	if ev.Type != api.EventTokenRevoked || json.Unmarshal(ev.Data, &said) != nil {
		return nil
	}
	t.change.Lock()
	defer t.change.Unlock()
	t.mu.RLock()
	found := t.byID[said.TokenID]
	t.mu.RUnlock()
	if found == nil || found.Revoked {
		return nil
	}
	next := *found
	next.Revoked, next.RevokedAt = true, ev.Time
	if err := t.end(&next); err != nil {
		return err
	}
	return t.bucket.Put(next.TokenID, &next)
}

func (t *Tokens) find(by Identity, idOrPrefix string) (*entry, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []*entry
	for _, e := range t.byID {
		if !e.Revoked && by.governs(e.Tenant) && (e.TokenID == idOrPrefix || e.Prefix == idOrPrefix) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, refuse(api.CodeTokenNotFound, "there is no such token", "berm token ls")
	}
	return nil, refuse(api.CodeBadRequest, "more than one token has that prefix", "name it by its id: berm token ls")
}

// List is every token that by may see, newest first.
func (t *Tokens) List(by Identity) []api.Token {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := []api.Token{}
	for _, id := range slices.Sorted(maps.Keys(t.byID)) {
		if e := t.byID[id]; by.governs(e.Tenant) {
			out = append(out, e.Token)
		}
	}
	slices.SortStableFunc(out, func(a, b api.Token) int { return strings.Compare(b.CreatedAt, a.CreatedAt) })
	return out
}

// Bootstrap answers the admin token of the first start. current is what the
// token file holds, "" for no file: a token that is still good is answered
// again, and made is false. Otherwise one is made, unless somebody made another
// admin token that is good: then there is nothing to answer. The caller writes
// it where only the owner reads.
func (t *Tokens) Bootstrap(ctx context.Context, current string) (token string, made bool, err error) {
	current = strings.TrimSpace(current)
	if _, err := t.Check(current); err == nil {
		return current, false, nil
	}
	by := Identity{TokenID: "system", Tenant: api.DefaultTenant, Role: api.RoleAdmin}
	now := t.now()
	for _, e := range t.entries() {
		if e.Role != api.RoleAdmin || e.Tenant != api.DefaultTenant || !e.dead(now).IsZero() {
			continue
		}
		if e.Label != FirstLabel {
			return "", false, nil
		}
		// Its file never came to be, or is gone: nobody has it.
		if err := t.Revoke(ctx, by, e.TokenID); err != nil {
			return "", false, err
		}
	}
	n, err := t.Create(ctx, by, api.TokenRequest{Role: api.RoleAdmin, Tenant: api.DefaultTenant, Label: FirstLabel})
	return n.Token, err == nil, err
}

func (t *Tokens) entries() []*entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.byID))
}

func refuse(code, message, hint string) error {
	return &api.Error{Code: code, Message: message, Hint: hint}
}
