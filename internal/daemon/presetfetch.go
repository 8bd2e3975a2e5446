package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/preset"
)

// What a registry answers is read by a process that owns nothing: a run that root
// started would else read it as root.

// A fetchAnswer is what that process says.
type fetchAnswer struct {
	Presets map[string]policy.Preset `json:"presets,omitempty"`
	Error   *api.Error               `json:"error,omitempty"`
}

const fetchFor = 30 * time.Second // all registries together

// fetchPresets completes what clients have said.
func fetchPresets(ctx context.Context, asked map[string]preset.Settings) (map[string]policy.Preset, error) {
	in, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	uid := 0
	if os.Geteuid() == 0 {
		lease, err := jail.LeaseUID()
		if err != nil {
			return nil, err
		}
		defer lease.Release()
		uid = lease.UID
	}
	ctx, cancel := context.WithTimeout(ctx, fetchFor+5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{"berm", "presets", "fetch", strconv.Itoa(uid)}
	cmd.Dir, cmd.Env = "/", []string{}
	for _, k := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v := os.Getenv(k); v != "" {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.Stdin = bytes.NewReader(in)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent-death signal goes with the thread
	defer runtime.UnlockOSThread()
	out, err := cmd.Output()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return nil, cause
	}
	var a fetchAnswer
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask registries where their files are: %w", err)
	case a.Error != nil:
		return nil, a.Error
	}
	for name := range asked {
		if _, ok := a.Presets[name]; !ok {
			return nil, fmt.Errorf("ask registries where their files are: no answer about %s", name)
		}
	}
	return a.Presets, nil
}

// runFetch is the main of that process.
func runFetch(as string) error {
	uid, err := strconv.Atoi(as)
	if err != nil {
		return errors.New("presets: not started by berm")
	}
	if err := jail.Drop(uid); err != nil {
		return err
	}
	unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) // another uid has lost it; at worst it ends by itself
	var asked map[string]preset.Settings
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return fmt.Errorf("presets: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchFor)
	defer cancel()
	a := fetchAnswer{Presets: map[string]policy.Preset{}}
	for name, s := range asked {
		p, err := preset.Complete(ctx, name, s)
		if err != nil {
			if !errors.As(err, &a.Error) {
				a.Error = &api.Error{Code: api.CodeEgressUnavailable, Message: err.Error()}
			}
			break
		}
		a.Presets[name] = p
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}
