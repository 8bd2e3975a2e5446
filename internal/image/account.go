package image

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
)

// An Account is who a root's commands run as.
type Account struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Home string `json:"home,omitempty"`
}

const maxID = 1<<32 - 2

// findAccount looks up what an image's configuration says of its user: a name or
// a number, with a group behind a colon or without, in the root's own
// /etc/passwd and /etc/group. "" is the agent. A number needs no entry: it has
// group 0 then, as container engines do it.
func findAccount(t *tree, user string) (Account, error) {
	name, group, withGroup := strings.Cut(user, ":")
	if user == "" {
		name = strconv.Itoa(agentID)
	}
	unknown := func(what, name, file string) error {
		return fail(api.CodeTemplateInvalid, fmt.Sprintf("%s %.80q is not in %s of the image", what, name, file), "name one that is, or give its number")
	}
	var a Account
	passwd, _ := readSmall(t, "/etc/passwd")
	id, numeric := number(name)
	f := findEntry(passwd, 6, func(f []string) bool { return f[0] == name })
	if f == nil && numeric {
		f = findEntry(passwd, 6, func(f []string) bool { n, ok := number(f[2]); return ok && n == id })
	}
	switch {
	case f != nil:
		uid, ok := number(f[2])
		gid, ok2 := number(f[3])
		if !ok || !ok2 {
			return a, unknown("user", name, "/etc/passwd")
		}
		a = Account{uid, gid, f[5]}
	case numeric && user == "":
		a = Account{agentID, agentID, "/home/" + agentName}
	case numeric:
		a = Account{UID: id}
	default:
		return a, unknown("user", name, "/etc/passwd")
	}
	if !strings.HasPrefix(a.Home, "/") || len(a.Home) >= maxPath || strings.ContainsAny(a.Home, "\x00\n") {
		a.Home = ""
	}
	a.Home = cmp.Or(a.Home, "/")
	if !withGroup {
		return a, nil
	}
	groups, _ := readSmall(t, "/etc/group")
	if f := findEntry(groups, 3, func(f []string) bool { return f[0] == group }); f != nil {
		if gid, ok := number(f[2]); ok {
			a.GID = gid
			return a, nil
		}
	}
	if gid, ok := number(group); ok {
		a.GID = gid
		return a, nil
	}
	return a, unknown("group", group, "/etc/group")
}

// number is a uid or gid in digits.
func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n <= maxID && s[0] != '+'
}

// findEntry is the first line of a passwd or group file with at least that many
// fields for which is says yes.
func findEntry(file string, fields int, is func(f []string) bool) []string {
	for line := range strings.Lines(file) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) >= fields && is(f) {
			return f
		}
	}
	return nil
}
