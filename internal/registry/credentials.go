package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// A Login is what a registry is shown. The zero value is nobody's.
type Login struct {
	Username, Password string
	IdentityToken      string // to get a token with, in place of a password
	RegistryToken      string // to show as it is
}

// String hides everything.
func (l Login) String() string { return "(a login)" }

// GoString hides everything.
func (l Login) GoString() string { return l.String() }

// Credentials finds what to show a registry for a repository. Not having any
// is no error: the zero Login.
type Credentials func(ctx context.Context, registry, repository string) (Login, error)

// Bounds of what credentials come from.
const (
	maxAuthFile   = 1 << 20
	maxHelperText = 64 << 10
	helperTimeout = 30 * time.Second
)

// HostCredentials finds what docker login and podman login of this process's
// user have kept, in their files and in the helper programs that these name.
// It must run where that user's rights are.
func HostCredentials() Credentials {
	h := hostLogins{env: os.Getenv, timeout: helperTimeout}
	h.home, _ = os.UserHomeDir()
	return h.find
}

type hostLogins struct {
	env     func(string) string
	home    string
	timeout time.Duration
}

// files lists where logins may be kept, the most telling first.
func (h hostLogins) files() []string {
	var list []string
	add := func(dir string, elem ...string) {
		if dir != "" {
			list = append(list, filepath.Join(append([]string{dir}, elem...)...))
		}
	}
	if dir := h.env("DOCKER_CONFIG"); dir != "" {
		add(dir, "config.json")
	} else {
		add(h.home, ".docker", "config.json")
	}
	add(h.env("REGISTRY_AUTH_FILE"))
	add(h.env("XDG_RUNTIME_DIR"), "containers", "auth.json")
	if dir := h.env("XDG_CONFIG_HOME"); dir != "" {
		add(dir, "containers", "auth.json")
	} else {
		add(h.home, ".config", "containers", "auth.json")
	}
	return list
}

// authFile is the part of docker's config.json and podman's auth.json that
// matters here.
type authFile struct {
	Auths       map[string]authEntry `json:"auths"`
	CredHelpers map[string]string    `json:"credHelpers"`
	CredsStore  string               `json:"credsStore"`
}

type authEntry struct {
	Auth          string `json:"auth"` // base64 of user:password
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

func (h hostLogins) find(ctx context.Context, registry, repository string) (Login, error) {
	var failed error
	for _, path := range h.files() {
		f, err := readAuthFile(path)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		login, err := h.inFile(ctx, f, registry, repository)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if login != (Login{}) {
			return login, nil
		}
	}
	return Login{}, failed
}

func readAuthFile(path string) (authFile, error) {
	var f authFile
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("logins in %s: %w", path, err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxAuthFile+1))
	if err != nil {
		return f, fmt.Errorf("logins in %s: %w", path, err)
	}
	if len(data) > maxAuthFile || json.Unmarshal(data, &f) != nil { // what json says may quote a secret
		return authFile{}, fmt.Errorf("logins in %s: it is not what docker or podman login writes", path)
	}
	return f, nil
}

// keys lists how a registry may be called in a file: podman knows logins of
// single repositories, docker has a name of its own for its hub.
func keys(registry, repository string) []string {
	var list []string
	for at := registry + "/" + repository; at != registry; at = at[:strings.LastIndexByte(at, '/')] {
		list = append(list, at)
	}
	list = append(list, registry, "https://"+registry, "http://"+registry,
		"https://"+registry+"/v1/", "https://"+registry+"/v2/", "https://"+registry+"/")
	if registry == "index.docker.io" {
		for _, k := range list[:strings.Count(repository, "/")+1] {
			list = append(list, "docker.io"+strings.TrimPrefix(k, registry))
		}
		list = append(list, "docker.io")
	}
	return list
}

func (h hostLogins) inFile(ctx context.Context, f authFile, registry, repository string) (Login, error) {
	names := keys(registry, repository)
	for _, k := range names {
		if helper := f.CredHelpers[k]; helper != "" {
			return h.ask(ctx, helper, serverName(registry, k))
		}
	}
	var failed error
	if f.CredsStore != "" {
		login, err := h.ask(ctx, f.CredsStore, serverName(registry, registry))
		if login != (Login{}) {
			return login, nil
		}
		failed = err
	}
	for _, k := range names {
		e, ok := f.Auths[k]
		if !ok {
			continue
		}
		login := Login{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken, RegistryToken: e.RegistryToken}
		if raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(e.Auth, "=\x00")); err == nil && len(raw) > 0 {
			user, password, _ := strings.Cut(string(raw), ":")
			login.Username, login.Password = user, strings.TrimRight(password, "\x00")
		}
		if login != (Login{}) {
			return login, nil
		}
	}
	return Login{}, failed
}

// serverName is how helpers know a registry.
func serverName(registry, key string) string {
	if registry == "index.docker.io" {
		return "https://index.docker.io/v1/"
	}
	return key
}

var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ask runs docker-credential-NAME get. Nothing that it prints is repeated.
func (h hostLogins) ask(ctx context.Context, helper, server string) (Login, error) {
	if !helperName.MatchString(helper) {
		return Login{}, fmt.Errorf("credential helper %.60q: this is no name of one", helper)
	}
	program := "docker-credential-" + helper
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "get")
	var out limitedBuffer
	cmd.Stdin, cmd.Stdout = strings.NewReader(server), &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return Login{}, fmt.Errorf("%s: it did not answer within %v", program, h.timeout)
	case err != nil && bytes.Contains(out.b.Bytes(), []byte("credentials not found")):
		return Login{}, nil
	case errors.Is(err, exec.ErrNotFound):
		return Login{}, fmt.Errorf("%s: there is no such program on the path", program)
	case err != nil:
		return Login{}, fmt.Errorf("%s: %w", program, err)
	case out.full:
		return Login{}, fmt.Errorf("%s: it said more than %d bytes", program, maxHelperText)
	}
	var answer struct{ Username, Secret string }
	if json.Unmarshal(out.b.Bytes(), &answer) != nil {
		return Login{}, fmt.Errorf("%s: what it said is no answer of a helper", program)
	}
	if answer.Username == "<token>" {
		return Login{IdentityToken: answer.Secret}, nil
	}
	return Login{Username: answer.Username, Password: answer.Secret}, nil
}

// limitedBuffer keeps the first bytes and swallows the rest.
type limitedBuffer struct {
	b    bytes.Buffer
	full bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxHelperText - b.b.Len(); len(p) > room {
		b.full = true
		b.b.Write(p[:room])
		return len(p), nil
	}
	return b.b.Write(p)
}
