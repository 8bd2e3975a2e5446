package attack

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// A Case is one attack: a program, the caps around it and what containment
// looks like from outside. A case file is a txtar archive: lines "key: value",
// then files, each after a line "-- name --". The first file is the program;
// its extension says what runs it.
type Case struct {
	ID        string
	Family    string
	Goal      string // what the program tries
	Contained string // what is seen from outside when it fails
	Wall      string // what must hold for it to be contained: one of Walls
	Stays     string // why it is contained even without that wall; "" where it must go red
	Waits     string // the part that is not built yet; such a case has no program
	Fact      string // the beginning of the needle's name that it goes for; bare, it must bring that out
	Drive     string // the Driver that attacks, or the companion of the program; "" where that is alone
	StandIn   string // an attempt of a program that stands in for a part: PART NAME ...
	User      string // root: in a template that grants root inside; "" is the agent
	Long      bool   // left out where there is little time
	Link      string // world or none; "" is world in the family egress and none in others
	Canary    string // of the family credentials: the kind of bait it goes for

	Limits   api.Limits
	Endings  []string // of which one must be the ending; exit if none are named
	Exit     int      // the exit code with ending exit
	Caps     []string // must be in caps_hit: this is what "seen" means here
	Out      []string // patterns to bring out
	Brought  int64    // the most bytes that may come out; 0 is maxOut
	Stdin    int64    // bytes of zero that the program is fed, and need not read
	Denied   []string // rules that bringing out must have recorded; of the family egress: reasons of the wire
	Alive    bool     // the sandbox must still serve afterwards
	Template string   // that its sandbox starts from; "" is what everybody starts from
	Tool     string   // one of tools: the program runs it, and its report is read
	Given    string   // the tool's file, where no template has it
	Handed   bool     // a descriptor is left open for every child of the caller
	Allow    []string // on the wire: what its policy allows beside world.Rules
	Reach    []string // and must reach, as world.Watch has it with a colon: http4:/path, tls6
	Bare     string   // on the wire, and of credentials: why no canary is reached even without Berm; "" where one must be

	// Bounds on what the host sees of the sandbox; 0 is none.
	HostMemory, HostTasks, HostDisk int64
	HostCPUs                        float64 // processors' worth of time

	// Lacks are the walls of which a process of the sandbox must lack none, as seen
	// from outside; only the case's own if none are named.
	Lacks []string

	Files []File
}

// A File goes into /workspace.
type File struct {
	Name string
	Data []byte
}

// Families, in the order of the report.
var Families = []string{egress, credentials, exhaustion, "escape", "api"}

// egress is the family of attacks on the network, credentials of those on what
// the host logs in with, exhaustion of those that use up what others need.
const (
	egress      = "egress"
	credentials = "credentials"
	exhaustion  = "exhaustion"
)

// wire says whether the case runs in a world of its own, on a wire.
func (c *Case) wire() bool { return c.Link == "world" || c.Family == egress && c.Link == "" }

//go:embed cases
var embedded embed.FS

// prelude is beside every program, so that none has to say it again; wire is
// beside those on the wire, hunt beside those that go for a canary.
const (
	prelude = "prelude.py"
	wire    = "wire.py"
	hunt    = "hunt.py"
)

// files are what lies in the case's workspace.
func (c *Case) files() ([]File, error) {
	libs := []string{prelude}
	if c.wire() {
		libs = append(libs, wire)
	}
	if c.Canary != "" {
		libs = append(libs, hunt)
	}
	var out []File
	for _, name := range libs {
		b, err := embedded.ReadFile("cases/" + name)
		if err != nil {
			return nil, err
		}
		out = append(out, File{name, b})
	}
	return append(out, c.Files...), nil
}

// Cases are all that this build knows, by family and name.
func Cases() ([]Case, error) {
	var out []Case
	err := eachFile(embedded, "cases", func(b []byte) (string, error) {
		c, err := parse(b)
		out = append(out, c)
		return c.ID, err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Case) int {
		if d := slices.Index(Families, a.Family) - slices.Index(Families, b.Family); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// eachFile reads the case files of a folder. read returns the id of each, which is
// its file's name.
func eachFile(files embed.FS, dir string, read func(b []byte) (id string, err error)) error {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path.Ext(e.Name()) != ".txtar" {
			continue
		}
		b, err := files.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		id, err := read(b)
		if err == nil && id+".txtar" != e.Name() {
			err = fmt.Errorf("its id is %q", id)
		}
		if err != nil {
			return fmt.Errorf("%s/%s: %w", dir, e.Name(), err)
		}
	}
	return nil
}

// called says whether the case is meant by a name.
func (c *Case) called(name string) bool {
	return name == c.Family || name == c.ID || name == toolCases && c.Tool != ""
}

// toolCases are all that run a tool, by one name.
const toolCases = "tools"

// Select keeps the cases of the families or ids that only names.
func Select(all []Case, only []string) ([]Case, error) {
	if len(only) == 0 {
		return all, nil
	}
	var out []Case
	for _, name := range only {
		if !slices.ContainsFunc(all, func(c Case) bool { return c.called(name) }) {
			return nil, &api.Error{Code: api.CodeBadRequest,
				Message: fmt.Sprintf("--only %.60q is neither a family nor a case; families: %s", name, strings.Join(Families, ", ")),
				Hint:    "berm attack --only " + Families[0]}
		}
	}
	for _, c := range all {
		if slices.ContainsFunc(only, c.called) {
			out = append(out, c)
		}
	}
	return out, nil
}

var (
	idShape   = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	fileShape = regexp.MustCompile(`^[a-z0-9_]+\.[a-z]+$`)
	fileLine  = regexp.MustCompile(`^-- (\S+) --$`)
)

// interpreters run programs, by extension.
var interpreters = map[string]string{".py": "python3", ".sh": "sh"}

// parse reads one case file.
func parse(b []byte) (Case, error) {
	c := Case{Limits: api.Limits{TimeoutSeconds: 20}}
	head, files, err := split(b, fileShape.MatchString)
	if err != nil {
		return c, err
	}
	c.Files = files
	if err := eachKey(head, c.set); err != nil {
		return c, err
	}
	if c.Waits == "" && len(c.Endings) == 0 {
		c.Endings = []string{api.EndExit}
	}
	return c, c.check()
}

// eachKey hands on what a head says, line by line.
func eachKey(head string, set func(key, value string) error) error {
	seen := map[string]bool{}
	for i, line := range strings.Split(head, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || value == "" {
			return fmt.Errorf("line %d is not `key: value`", i+1)
		}
		if seen[key] {
			return fmt.Errorf("line %d says %s again", i+1, key)
		}
		seen[key] = true
		if err := set(key, value); err != nil {
			return fmt.Errorf("line %d: %s: %w", i+1, key, err)
		}
	}
	return nil
}

// split takes the head and the files of a txtar archive apart. may says how
// files may be called.
func split(b []byte, may func(name string) bool) (head string, files []File, err error) {
	var text bytes.Buffer
	for line := range bytes.Lines(b) {
		m := fileLine.FindSubmatch(bytes.TrimRight(line, "\r\n"))
		switch {
		case m == nil && len(files) == 0:
			text.Write(line)
		case m == nil:
			f := &files[len(files)-1]
			f.Data = append(f.Data, line...)
		default:
			name := string(m[1])
			if !may(name) || name == prelude || name == wire || name == hunt {
				return "", nil, fmt.Errorf("a file may not be called %.60q", name)
			}
			if slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
				return "", nil, fmt.Errorf("file %s is there twice", name)
			}
			files = append(files, File{Name: name})
		}
	}
	return text.String(), files, nil
}

func (c *Case) set(key, value string) (err error) {
	words := strings.Fields(value)
	switch key {
	case "id":
		c.ID = value
	case "family":
		c.Family = value
	case "goal":
		c.Goal = value
	case "contained":
		c.Contained = value
	case "wall":
		c.Wall = value
	case "stays":
		c.Stays = value
	case "waits":
		c.Waits = value
	case "fact":
		c.Fact = value
	case "user":
		if c.User = value; value != "root" {
			err = errors.New("is only ever root")
		}
	case "drive":
		c.Drive = value
	case "standin":
		c.StandIn = value
	case "lacks":
		c.Lacks = words
	case "timeout":
		var d time.Duration
		d, err = time.ParseDuration(value)
		c.Limits.TimeoutSeconds = d.Seconds()
	case "pids":
		c.Limits.Pids, err = strconv.ParseInt(value, 10, 32)
	case "memory":
		c.Limits.MemoryBytes, err = size(value)
	case "disk":
		c.Limits.DiskBytes, err = size(value)
	case "output":
		c.Limits.OutputBytes, err = size(value)
	case "brought":
		c.Brought, err = size(value)
	case "stdin":
		c.Stdin, err = size(value)
	case "host-memory":
		c.HostMemory, err = size(value)
	case "host-disk":
		c.HostDisk, err = size(value)
	case "cpus":
		c.Limits.CPUs, err = strconv.ParseFloat(value, 64)
	case "host-cpus":
		c.HostCPUs, err = strconv.ParseFloat(value, 64)
	case "host-tasks":
		c.HostTasks, err = strconv.ParseInt(value, 10, 32)
	case "ending":
		c.Endings = words
	case "exit":
		c.Exit, err = strconv.Atoi(value)
	case "caps":
		c.Caps = words
	case "out":
		c.Out = words
	case "denied":
		c.Denied = words
	case "allow":
		c.Allow = words
	case "reach":
		c.Reach = words
	case "bare":
		c.Bare = value
	case "canary":
		c.Canary = value
	case "link":
		if c.Link = value; value != "none" && value != "world" {
			err = errors.New("is only ever none or world")
		}
	case "long":
		if c.Long = value == "yes"; !c.Long {
			err = errors.New("is only ever yes")
		}
	case "alive":
		if c.Alive = value == "yes"; !c.Alive {
			err = errors.New("is only ever yes")
		}
	case "template":
		c.Template = value
	case "tool":
		c.Tool = value
	case "given":
		c.Given = value
	case "handed":
		if c.Handed = value == "yes"; !c.Handed {
			err = errors.New("is only ever yes")
		}
	default:
		err = errors.New("is not known")
	}
	return err
}

// size is one that is more than nothing.
func size(s string) (int64, error) {
	n, err := api.ParseSize(s)
	if err == nil && n == 0 {
		err = errors.New("is no size to hold a program to")
	}
	return n, err
}

func (c *Case) check() error {
	known := []string{api.EndExit, api.EndSignal, api.EndTimeout, api.EndMemory, api.EndProcesses, api.EndOutput}
	if c.StandIn != "" { // what is behind the walls may end itself
		known = append(known, api.EndHostFailure, api.EndKilled)
	}
	for _, e := range c.Endings {
		if !slices.Contains(known, e) {
			return fmt.Errorf("ending %q is none that a case can want", e)
		}
	}
	switch {
	case !idShape.MatchString(c.ID):
		return fmt.Errorf("id %.60q is not a name", c.ID)
	case !slices.Contains(Families, c.Family):
		return fmt.Errorf("family %.60q is not known", c.Family)
	case c.Goal == "" || c.Contained == "":
		return errors.New("it does not say its goal and what containment looks like")
	case Walls[c.Wall] == "":
		return fmt.Errorf("wall %.60q is not known", c.Wall)
	case c.Waits != "" && len(c.Files) > 0:
		return errors.New("it waits for a part that is missing and has a program all the same")
	case c.Waits == "" && c.Drive == "" && c.StandIn == "" && len(c.Files) == 0:
		return errors.New("it has no program")
	case c.StandIn != "" && (len(c.Files) > 0 || c.Drive != "" || !slices.Contains(StandIns, c.part())):
		return errors.New("a stand-in is for one of the parts " + strings.Join(StandIns, ", ") + ", and is all the program there is")
	case c.Drive != "" && drivers[c.Drive] == nil && companions[c.Drive] == nil:
		return fmt.Errorf("nothing drives %.60q", c.Drive)
	case len(c.Files) > 0 && interpreters[path.Ext(c.Files[0].Name)] == "":
		return fmt.Errorf("nothing is known to run %s", c.Files[0].Name)
	case c.Link == "none" && c.Family != egress:
		return errors.New("only the family egress has links to go without")
	case !c.wire() && len(c.Allow)+len(c.Reach) > 0:
		return errors.New("only attacks on the wire have a policy")
	case !c.wire() && c.Family != credentials && c.Bare != "":
		return errors.New("only attacks on the wire and on credentials are run without Berm")
	case (c.Canary == "") == (c.Family == credentials && !c.wire() && len(c.Files) > 0):
		return errors.New("a program that goes for credentials says which canary is its own, and no other does")
	case c.Tool != "" && tools[c.Tool].over == "":
		return fmt.Errorf("nobody can read what %.60q says", c.Tool)
	case c.Tool != "" && c.Template == "":
		return errors.New("it does not say which template has its tool")
	case c.Limits.TimeoutSeconds <= 0 || c.Limits.TimeoutSeconds > 60:
		return errors.New("its timeout is not between 0 and 60 seconds")
	}
	return nil
}
