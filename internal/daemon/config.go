package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/alert"
)

// Config is the config file of `berm serve`: flat, one key a line; unknown keys
// fail. Flags win over it.
type Config struct {
	Listen  list   `yaml:"listen"`   // addresses, as in 127.0.0.1:7070
	TLSCert string `yaml:"tls_cert"` // files; with both, TCP speaks TLS only
	TLSKey  string `yaml:"tls_key"`
	Hosts   list   `yaml:"hosts"` // further names that clients may call this daemon by

	MemoryBudget          size     `yaml:"memory_budget"`   // sum of all memory caps; 0: 80 % of the host's memory
	QuotaSandboxes        int      `yaml:"quota_sandboxes"` // of one tenant; 0: no bound
	QuotaMemory           size     `yaml:"quota_memory"`
	QuotaCreatesPerMinute int      `yaml:"quota_creates_per_minute"`
	AuditRetention        duration `yaml:"audit_retention"` // 0: 90 days
	AuditMaxBytes         size     `yaml:"audit_max_bytes"` // 0: 1g
	LogFormat             string   `yaml:"log_format"`      // text or json
	LogLevel              string   `yaml:"log_level"`       // debug, info, warn or error

	Presets string `yaml:"presets"` // file that says what presets of egress rules stand for

	Alerts []alert.Rule `yaml:"alerts"` // events that match are told to a webhook or a command
}

// A list may be written as one string, if it has one thing in it.
type list []string

func (l *list) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if *l = nil; n.Value != "" {
			*l = list{n.Value}
		}
		return nil
	}
	return n.Decode((*[]string)(l))
}

type size int64

func (s *size) UnmarshalYAML(n *yaml.Node) error {
	v, err := api.ParseSize(n.Value)
	*s = size(v)
	return at(n, err)
}

type duration time.Duration

// UnmarshalYAML takes whole seconds as well: a file has no habit of units.
func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	if secs, err := strconv.ParseUint(n.Value, 10, 32); err == nil {
		*d = duration(time.Duration(secs) * time.Second)
		return nil
	}
	v, err := api.ParseTime(n.Value)
	*d = duration(v)
	return at(n, err)
}

// at says which value of the file an error is about.
func at(n *yaml.Node, err error) error {
	if err != nil {
		err = fmt.Errorf("line %d: %.40q %w", n.Line, n.Value, err)
	}
	return err
}

const maxConfig = 1 << 20

// ReadConfig reads a config file.
func ReadConfig(path string) (c Config, err error) {
	fail := func(err error) error {
		return &api.Error{Code: api.CodeBadRequest, Message: "config " + path + ": " + err.Error(), Hint: "the keys are: " + strings.Join(configKeys(), ", ")}
	}
	f, err := os.Open(path)
	if err != nil {
		return c, &api.Error{Code: api.CodeBadRequest, Message: "config: " + err.Error(), Hint: "berm serve --config FILE"}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("longer than %d bytes", maxConfig)
	}
	if err != nil {
		return c, fail(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fail(errors.New(plain(err)))
	}
	if err := c.check(); err != nil {
		return c, fail(err)
	}
	return c, nil
}

var (
	wrongKind = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: (`[^`]*`))? into (\\S+)")
	kinds     = map[string]string{"string": "a text", "int": "a whole number", "float64": "a number", "bool": "true or false", "[]string": "a list of texts",
		"[]alert.Rule": "a list of alerts", "alert.Rule": "an alert, with keys", "daemon.Config": "keys with values", "seq": "a list", "map": "a table of keys"}
)

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plain is what the reader of YAML says, in the words of somebody who wrote the
// file and has not read this program.
func plain(err error) string {
	s := unknownField.ReplaceAllString(err.Error(), "$1 is not a key")
	s = wrongKind.ReplaceAllStringFunc(s, func(s string) string {
		m := wrongKind.FindStringSubmatch(s)
		return cmp.Or(m[2], kinds[m[1]], "this") + " is not " + cmp.Or(kinds[m[3]], "what belongs here")
	})
	s = strings.TrimPrefix(strings.TrimPrefix(s, "yaml: "), "unmarshal errors:")
	return strings.Join(strings.Fields(s), " ")
}

func (c *Config) check() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("tls_cert and tls_key go together")
	}
	switch c.LogFormat {
	case "", "text", "json":
	default:
		return fmt.Errorf("log_format: %.40q is neither text nor json", c.LogFormat)
	}
	switch c.LogLevel {
	case "", "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("log_level: %.40q is none of debug, info, warn, error", c.LogLevel)
	}
	if _, err := alert.New(c.Alerts, nil, nil, nil); err != nil {
		return err
	}
	if c.QuotaSandboxes < 0 || c.QuotaCreatesPerMinute < 0 {
		return errors.New("a quota cannot be negative")
	}
	return nil
}

func configKeys() (out []string) {
	t := reflect.TypeFor[Config]()
	for i := range t.NumField() {
		out = append(out, t.Field(i).Tag.Get("yaml"))
	}
	return out
}
