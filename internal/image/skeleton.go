package image

import (
	"fmt"
	"io"
	"strings"
)

// maxPasswd bounds what is read of a template's own /etc/passwd, in bytes.
const maxPasswd = 1 << 20

const (
	passwdFile = `root:x:0:0:root:/root:%[1]s
agent:x:1000:1000:agent:/home/agent:%[1]s
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`
	groupFile = `root:x:0:
tty:x:5:
shadow:x:42:
users:x:100:
agent:x:1000:
nogroup:x:65534:
`
	hostsFile = `127.0.0.1	localhost berm
::1	localhost ip6-localhost ip6-loopback berm
`
	nsswitchFile = `passwd:    files
group:     files
shadow:    files
hosts:     files dns
networks:  files
protocols: files
services:  files
`
	profileFile = `export PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LANG=C.UTF-8
[ -n "$HOME" ] || export HOME=/home/agent
umask 022
`
)

// skeleton lists the directories that every guest has.
var skeleton = []struct {
	path string
	perm uint32
	id   uint32
	// own says that a template's directory there keeps its own mode and owner.
	own bool
}{
	{"/proc", 0o555, 0, false},
	{"/sys", 0o555, 0, false},
	{"/dev", 0o755, 0, false},
	{"/run", 0o755, 0, false},
	{"/tmp", 0o1777, 0, false},
	{"/var", 0o755, 0, true},
	{"/var/tmp", 0o1777, 0, false},
	{"/home", 0o755, 0, true},
	{"/home/agent", 0o755, agentID, false},
	{"/workspace", 0o755, agentID, false},
	{"/etc", 0o755, 0, true},
	{"/.berm", 0o755, 0, false}, // the agent's layer lies over it
}

// hostSkeleton is what the host template has beyond that.
var hostSkeleton = []string{
	"/mnt", "/srv", "/opt", "/media", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local/bin",
	"/var/cache", "/var/lib", "/var/log", "/var/spool",
}

// tmpMark lies in /tmp because gVisor puts a file system of memory over an
// empty one, and what lies in /tmp has to count as disk. The guest's agent
// removes it before anything else runs.
const tmpMark = "/tmp/.berm"

// addSkeleton makes sure that the guest's fixed places are directories, also
// where the template has something else there.
func addSkeleton(t *tree) error {
	for _, s := range skeleton {
		if s.own {
			if n := t.find(s.path); n != nil && n.isDir() {
				continue
			}
		}
		d := newDir(s.perm)
		d.uid, d.gid = s.id, s.id
		if err := t.add(s.path, d); err != nil {
			return err
		}
	}
	return t.provide(tmpMark, 0o600, "")
}

// addGuestFiles writes the files of /etc that say who and where the guest is.
// The template's own accounts stay; the agent's is added if uid 1000 is free.
func addGuestFiles(t *tree) error {
	shell := "/bin/sh"
	if n := t.find("/bin/bash"); n != nil && n.isFile() {
		shell = "/bin/bash"
	}
	files := map[string]string{
		"/etc/resolv.conf": "",
		"/etc/hosts":       hostsFile,
		"/etc/passwd":      fmt.Sprintf(passwdFile, shell),
		"/etc/group":       groupFile,
	}
	name := agentName
	if old, ok := readSmall(t, "/etc/passwd"); ok {
		if hasName(old, name) {
			name = "agent1000"
		}
		files["/etc/passwd"] = mergeID(old, fmt.Sprintf("%s:x:1000:1000:agent:/home/agent:%s", name, shell))
	}
	if old, ok := readSmall(t, "/etc/group"); ok {
		if name = agentName; hasName(old, name) {
			name = "agent1000"
		}
		files["/etc/group"] = mergeID(old, name+":x:1000:")
	}
	for path, content := range files {
		if err := t.provide(path, 0o644, content); err != nil {
			return err
		}
	}
	for path, content := range map[string]string{
		"/etc/hostname":      "berm\n",
		"/etc/nsswitch.conf": nsswitchFile,
	} {
		if t.find(path) == nil {
			if err := t.provide(path, 0o644, content); err != nil {
				return err
			}
		}
	}
	return nil
}

// provide puts a file of root's at path, unless the same is there: what a layer
// need not change it does not hold.
func (t *tree) provide(path string, perm uint32, content string) error {
	names, err := split(path)
	if err != nil {
		return err
	}
	if n, err := t.walk(names, false, false); err == nil && n.isFile() && n.mode == typeFile|perm && n.uid == 0 && n.gid == 0 &&
		n.size == int64(len(content)) {
		if old, ok := readSmall(t, path); ok && old == content {
			return nil
		}
	}
	return t.add(path, newFile(perm, []byte(content)))
}

// readSmall reads a file of the tree. It follows symlinks inside the tree only.
func readSmall(t *tree, path string) (string, bool) {
	n := t.find(path)
	if n == nil || !n.isFile() || n.size > maxPasswd {
		return "", false
	}
	if n.src == nil {
		return "", true
	}
	r, done, err := n.src.reader()
	if err != nil {
		return "", false
	}
	defer done()
	b, err := io.ReadAll(io.LimitReader(r, n.size))
	return string(b), err == nil
}

// mergeID appends line to a passwd or group file unless its id, the third
// field, is in use there.
func mergeID(file, line string) string {
	id := strings.Split(line, ":")[2]
	for l := range strings.SplitSeq(file, "\n") {
		if f := strings.Split(l, ":"); len(f) > 2 && f[2] == id {
			return file
		}
	}
	if file != "" && !strings.HasSuffix(file, "\n") {
		file += "\n"
	}
	return file + line + "\n"
}

func hasName(file, name string) bool {
	return strings.HasPrefix(file, name+":") || strings.Contains(file, "\n"+name+":")
}
