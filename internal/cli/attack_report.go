package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"

	"github.com/bermhq/berm/attack"
)

// build says what this program is, as exactly as can be said. What cannot be
// read is left out.
func (env *Env) build() attack.Build {
	b := attack.Build{Version: env.Version.Version, Commit: env.Version.Commit, Go: env.Version.Go, BinarySHA256: digest("/proc/self/exe")}
	if env.Runtime != nil {
		if path, err := env.Runtime(env.StateDir); err == nil {
			b.RuntimeSHA256 = digest(path)
		}
	}
	return b
}

// digest is the SHA-256 of a file; "" if it cannot be read.
func digest(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// command is what a person types to attack in the same way.
func (o *attackOptions) command() string {
	args := []string{"berm", "attack"}
	if len(o.only) > 0 {
		args = append(args, "--only", strings.Join(o.only, ","))
	}
	if len(o.rungs) > 0 {
		args = append(args, "--isolation", strings.Join(o.rungs, ","))
	}
	if o.external != "" {
		args = append(args, "--against", o.external)
	}
	if o.short {
		args = append(args, "--short")
	}
	return shellLine(args)
}
