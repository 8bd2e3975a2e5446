package agent

import (
	"io"
	"slices"
	"strconv"
	"strings"
)

// Bounds on what is read of a guest's accounts.
const (
	maxAccounts = 256 << 10
	maxGroups   = 32
)

// groupsOf are the groups, beside its own, of a user that the template names, by
// the guest's own files. The agent and root have none.
func groupsOf(uid, gid uint32) []uint32 {
	if uid == 0 || uid == 1000 {
		return nil
	}
	name := ""
	for f := range accounts("/etc/passwd") {
		if len(f) > 2 && f[2] == strconv.FormatUint(uint64(uid), 10) {
			name = f[0]
			break
		}
	}
	return membership(accounts("/etc/group"), name, gid)
}

// membership are the groups that name is a member of.
func membership(groups func(func([]string) bool), name string, own uint32) (out []uint32) {
	if name == "" {
		return nil
	}
	for f := range groups {
		if len(f) < 4 || !slices.Contains(strings.Split(f[3], ","), name) {
			continue
		}
		g, err := strconv.ParseUint(f[2], 10, 32)
		if err == nil && uint32(g) != own && g < tagBase && !slices.Contains(out, uint32(g)) {
			if out = append(out, uint32(g)); len(out) == maxGroups {
				break
			}
		}
	}
	return out
}

// accounts are the lines of a passwd or group file, in fields.
func accounts(path string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := openRegular(path)
		if err != nil {
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(io.LimitReader(f, maxAccounts))
		for line := range strings.Lines(string(b)) {
			if !yield(strings.Split(strings.TrimRight(line, "\r\n"), ":")) {
				return
			}
		}
	}
}
