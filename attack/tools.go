package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// A tool is somebody else's program that looks for ways out or up, or makes
// trouble, and says what it found. The host is watched as with any case; beside
// that the tool's report is read. What it says is a claim by a stranger about the
// guest: one that nothing explains is a finding, for a person to look at; one
// that is known to be wrong, or about the guest alone, is counted as noise with
// the reason.
type tool struct {
	over  string   // what a report has that came to its end
	finds []string // what would be real
	noise []remark
}

// A remark is what tools say and why it is nothing.
type remark struct{ shape, why string }

// Why claims are noise, where several tools make the same.
const (
	byVersion = "it judges by the kernel's version, and the guest's kernel is a program that only calls itself 4.4.0: that none of it works, the escape cases show"
	setuidBit = "set-user-id bits are there, and do nothing: programs inside may gain no privileges"
	statusOf  = "it reads the guest's own words: on the host each process has a filter, as the cases of that wall see"
	ownRoot   = "it is about root of the guest, which owns the template's files and nothing outside"
)

// tools are those whose reports can be read, by the name that cases give.
var tools = map[string]tool{
	"capsh": {over: `Guessed mode:`,
		finds: []string{`^Current: =.*[a-z]`, `^Bounding set =.*[a-z]`, `^uid=0\(`, `no-new-privs=0`}},
	"captest": {over: `(?s)Attempting direct access to shadow.*by child process`,
		finds: []string{`SUCCESS`, `^(Current|Child) capabilities: *(effective|permitted|full)`},
		noise: []remark{{`\bagent \*? .*chown`, "the agent, process 1 inside, changes to the user of each command: its rights end at the guest"}}},
	"linuxprivchecker": {over: `(?m)^Finished`,
		finds: []string{`^\s*root:[^:*!]{3,}:`, `^\s*uid=0`, `docker\.sock`, `^\s*-rw-rw-rw-`, `^\s*\S*(/root/)\S+`},
		noise: []remark{{`exploit-db\.com/exploits`, byVersion}, {`^\s*-[rwx-]*s[rwx-]* `, setuidBit}, {`^\s*d[rwx-]{8}t`, "folders that all may write are meant so"}}},
	"privmap": {over: `(?m)^privmap: [0-9]+ paths`,
		finds: []string{`^path .*(critical|high)`},
		noise: []remark{{`^path .*/(bin|sbin|lib|lib64)\b.*0o777`, "it takes the mode of a link for that of the folder it leads to"}, {`(?i)^path .*(set-?[ug]id|suid|sgid)`, setuidBit}, {`^path `, ownRoot}}},
	"cepheus": {over: `(?m)^posture: [0-9]+ mounts`,
		finds: []string{`^(privileged|can_reach_\w+|cloud_metadata_available|service_account_token): true`, `^(effective|permitted|bounding): CAP`,
			`^mount: .*(docker|containerd|crio)`, `^confirmed: `},
		noise: []remark{{`^seccomp: disabled`, statusOf}, {`^namespace user: false`, "the guest has no user namespaces of the host's to be in"}, {`^potential: `, byVersion}}},
	"amicontained": {over: `(?m)^Blocked Syscalls`,
		finds: []string{`(?i)^docker\.sock found`, `^\s+(BOUNDING|EFFECTIVE|AMBIENT) -> .+`, `^\s+pid: false`},
		noise: []remark{{`^Seccomp: disabled`, statusOf}, {`^\s+user: false`, "the guest has no user namespaces of the host's to be in"},
			{`^AppArmor Profile: unconfined`, "the guest's kernel has no AppArmor; what confines is outside"}}},
	"deepce": {over: `Enumerating Containers`,
		finds: []string{`Exploitable`, `(Docker Sock|Privileged Mode|Sudo|Docker Executable) \.+ .*(Yes|Found at|/)`},
		noise: []remark{{`Exploit Test \.+`, "it is the legend of its own colours"}}},
	"linenum": {over: `SCAN COMPLETE`,
		finds: []string{`^\[\+\] (We can|It looks like we|Looks like we|.*(docker|lxc).*(group|host))`, `^root:[^:*!x]{3,}:`},
		noise: []remark{{`^-[rwx-]*s[rwx-]* `, setuidBit}}},
	"suggester": {over: `(?s)Possible Exploits.*CVE-`,
		noise: []remark{{`^\[\+\] \[CVE-`, byVersion}}},
	"trinity":   {over: `[0-9]{4,} iterations|marking as inactive`, finds: []string{`(?i)kernel became tainted|BUG:|Oops`}},
	"stress-ng": {over: `run completed in|stress-ng was here`, finds: []string{`(?i)kernel panic|BUG:|Oops`}},
}

var colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// read takes a report apart: what would be real, how many claims are noise by
// their reason, and whether the report is whole.
func (t tool) read(report []byte) (found []string, noise map[string]int, whole bool) {
	report = colours.ReplaceAll(report, nil)
	whole = regexp.MustCompile(t.over).Match(report)
	noise = map[string]int{}
lines:
	for line := range strings.Lines(string(report)) {
		line = strings.TrimRight(line, "\r\n ")
		for _, n := range t.noise {
			if regexp.MustCompile(n.shape).MatchString(line) {
				noise[n.why]++
				continue lines
			}
		}
		for _, f := range t.finds {
			if regexp.MustCompile(f).MatchString(line) && len(found) < 8 {
				found = append(found, fmt.Sprintf("%.120q", strings.TrimSpace(line)))
				break
			}
		}
	}
	return found, noise, whole
}

// readTool notes what a tool claims.
func (o *Observation) readTool(c Case, report []byte) {
	if c.Tool == "" {
		return
	}
	found, noise, whole := tools[c.Tool].read(report)
	o.Claims, o.Unread = found, !whole
	var reasons []string
	for why, n := range noise {
		reasons = append(reasons, fmt.Sprintf("%d times %s", n, why))
	}
	slices.Sort(reasons)
	o.Noise = strings.Join(reasons, "; ")
}

// toolSession opens a session with the template that a tool lies in, and says
// how to come by what is missing.
func (r *run) toolSession(ctx context.Context, c Case) (s *Session, unfit string, err error) {
	if c.Given != "" {
		if _, err := os.Stat(filepath.Join(r.opt.Tools, c.Given)); r.opt.Tools == "" || err != nil {
			return nil, fmt.Sprintf("no package registry has %s: put it in a folder, from where its authors publish it (try: berm attack --tools FOLDER --only %s)", c.Given, c.ID), nil
		}
	}
	if r.opt.OpenTemplate == nil {
		return nil, "whoever attacks opens no other template", nil
	}
	s, err = r.opt.OpenTemplate(ctx, c.Template)
	if e := new(api.Error); errors.As(err, &e) && e.Code == api.CodeTemplateNotFound {
		return nil, fmt.Sprintf("the template %s is not there (try: berm template build %s)", c.Template, c.Template), nil
	}
	return s, "", err
}

// maxReport is how much of what the program prints is kept to be read.
func (c *Case) maxReport() int {
	if c.Tool == "" {
		return 0
	}
	return 1 << 20
}

// Given are the files that are looked for in a folder of tools.
func Given() (out []string) {
	all, _ := Cases()
	for _, c := range all {
		if c.Given != "" {
			out = append(out, c.Given)
		}
	}
	return out
}

// maxGiven is more than any such tool has.
const maxGiven = 64 << 20

// given is the tool that somebody has put in a folder.
func (a *attempt) given() ([]File, error) {
	if a.c.Given == "" {
		return nil, nil
	}
	path := filepath.Join(a.tools, a.c.Given)
	if fi, err := os.Stat(path); err != nil || fi.Size() > maxGiven {
		return nil, fmt.Errorf("%s is not there, or has more than %d MiB", path, maxGiven>>20)
	}
	b, err := os.ReadFile(path)
	return []File{{a.c.Given, b}}, err
}

// report is the program's output without the marks of the runner.
func (a *attempt) report() []byte { return bytes.ReplaceAll(a.told.Bytes(), []byte(a.nonce), nil) }
