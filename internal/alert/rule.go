package alert

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// Rule says which events tell whom. The zero values of the filters take all.
type Rule struct {
	Name      string   `json:"name" yaml:"name"`
	Types     []string `json:"types,omitempty" yaml:"types"` // noun.verb, or noun.* for all of a noun
	Tenant    string   `json:"tenant,omitempty" yaml:"tenant"`
	SandboxID string   `json:"sandbox_id,omitempty" yaml:"sandbox_id"`

	// Count events within WindowSeconds make one alert; 0 and 1: each does.
	Count         int     `json:"count,omitempty" yaml:"count"`
	WindowSeconds float64 `json:"window_seconds,omitempty" yaml:"window_seconds"`

	Webhook string   `json:"webhook,omitempty" yaml:"webhook"` // a URL; this or Command
	Secret  string   `json:"secret,omitempty" yaml:"secret"`   // signs what is sent to it
	Command []string `json:"command,omitempty" yaml:"command"` // a program by its path, and arguments

	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" yaml:"timeout_seconds"` // of one attempt; 0: 10
}

const (
	defaultTimeout = 10.0
	maxTimeout     = 300.0
	maxCount       = 10_000
	maxWindow      = 86400.0
	maxRules       = 100
	minSecret      = 16
)

var (
	nameShape = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	typeShape = regexp.MustCompile(`^[a-z]+\.([a-z-]+|\*)$`)
)

// check says what is wrong with a rule.
func (r *Rule) check() error {
	bad := func(format string, args ...any) error {
		return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("alert %q: ", r.Name) + fmt.Sprintf(format, args...),
			Hint: "correct it under alerts: in the config file"}
	}
	if !nameShape.MatchString(r.Name) {
		return bad("a name is of a-z, 0-9, point, dash and underscore, 63 characters at most")
	}
	for _, t := range r.Types {
		if !typeShape.MatchString(t) {
			return bad("%q is not a type of event, such as sandbox.ended or sandbox.*", t)
		}
	}
	switch {
	case r.Count < 0 || r.Count > maxCount:
		return bad("count is between 0 and %d", maxCount)
	case !(r.WindowSeconds >= 0 && r.WindowSeconds <= maxWindow):
		return bad("window_seconds is between 0 and %.0f", maxWindow)
	case r.Count > 1 && r.WindowSeconds == 0:
		return bad("count without window_seconds")
	case !(r.TimeoutSeconds >= 0 && r.TimeoutSeconds <= maxTimeout):
		return bad("timeout_seconds is between 0 and %.0f", maxTimeout)
	case (r.Webhook == "") == (len(r.Command) == 0):
		return bad("it has either a webhook or a command")
	case len(r.Command) > 0 && !filepath.IsAbs(r.Command[0]):
		return bad("the command is a program by its absolute path")
	case len(r.Command) > 0 && r.Secret != "":
		return bad("a secret is for a webhook")
	case r.Webhook != "" && len(r.Secret) < minSecret:
		return bad("a webhook needs a secret of %d characters or more, which signs what is sent", minSecret)
	}
	if r.Webhook != "" {
		u, err := url.Parse(r.Webhook)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return bad("the webhook is an http or https URL without a user in it")
		}
	}
	return nil
}

// match says whether an event is one that the rule is about.
func (r *Rule) match(e *api.Event) bool {
	if r.Tenant != "" && e.Tenant != r.Tenant || r.SandboxID != "" && e.SandboxID != r.SandboxID {
		return false
	}
	return len(r.Types) == 0 || slices.ContainsFunc(r.Types, func(t string) bool {
		noun, all := strings.CutSuffix(t, "*")
		return t == e.Type || all && strings.HasPrefix(e.Type, noun)
	})
}

// counter counts what matched within the window of a rule.
type counter struct {
	seen []sighting
	sum  int
}

type sighting struct {
	at time.Time
	n  int
}

// add takes an event that matched and says how many there were, once there are
// enough; then it begins anew. An event that stands for many counts as many.
func (c *counter) add(r *Rule, e *api.Event) int {
	n := 1
	var many struct {
		Count int `json:"count"`
	}
	if json.Unmarshal(e.Data, &many) == nil && many.Count > 1 {
		n = min(many.Count, maxCount)
	}
	if r.Count <= 1 {
		return n
	}
	at, err := time.Parse(time.RFC3339Nano, e.Time)
	if err != nil {
		at = time.Time{}
	}
	c.seen = append(c.seen, sighting{at, n})
	c.sum += n
	window := time.Duration(r.WindowSeconds * float64(time.Second))
	for len(c.seen) > 0 && at.Sub(c.seen[0].at) > window {
		c.sum -= c.seen[0].n
		c.seen = c.seen[1:]
	}
	if c.sum < r.Count {
		return 0
	}
	sum := c.sum
	c.seen, c.sum = nil, 0
	return sum
}
