package gvisor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// The few fields of the OCI runtime specification that gVisor reads from us.
// The format is https://github.com/opencontainers/runtime-spec.
type ociSpec struct {
	Version     string            `json:"ociVersion"`
	Process     ociProcess        `json:"process"`
	Root        ociRoot           `json:"root"`
	Hostname    string            `json:"hostname"`
	Mounts      []ociMount        `json:"mounts"`
	Linux       ociLinux          `json:"linux"`
	Annotations map[string]string `json:"annotations"`
}

type ociProcess struct {
	User         map[string]uint32   `json:"user"`
	Args         []string            `json:"args"`
	Env          []string            `json:"env"`
	Cwd          string              `json:"cwd"`
	Capabilities map[string][]string `json:"capabilities"`
	Rlimits      []ociRlimit         `json:"rlimits"`
	NoNewPrivs   bool                `json:"noNewPrivileges"`
}

type ociRlimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

type ociRoot struct {
	Path     string `json:"path"`
	Readonly bool   `json:"readonly"`
}

type ociMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

type ociLinux struct {
	Namespaces []map[string]string `json:"namespaces"`
}

// Where the agent's layer is mounted inside, and the program in it.
const (
	agentMount = "/.berm"
	agentPath  = agentMount + "/agent"
)

// agentCaps are what PID 1 of the guest may do inside it: change to the user
// of each command, own and remove its files, end its processes, and be exempt
// from that user's process limit. They mean nothing outside.
var agentCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL",
	"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_RESOURCE"}

// rootCaps are what the guest's root may do where a template grants it: what a
// container's root usually may, and nothing that mounts, traces or configures a
// network. The agent has them to pass them on.
var rootCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"}

// Where the parts of a stacked root are mounted for the agent, in its own image:
// what it finds there is in agent.Stack, the directories in image.AgentFiles.
const (
	maxLayers    = 40
	layerMount   = "/l/"
	upperMount   = "/tmp" // where gVisor would put memory over an empty directory
	stackedAgent = "/agent"
)

// stacked says whether the agent has to put the root together: where it has
// more than one layer, or the writable one must be told apart.
func stacked(s backend.Spec) bool { return len(s.Upper) > 0 || s.Track }

// first is what PID 1 of the guest is told and may do.
func first(s backend.Spec) (args, caps []string) {
	caps = slices.Clone(agentCaps)
	if s.Root {
		for _, c := range rootCaps {
			if !slices.Contains(caps, c) {
				caps = append(caps, c)
			}
		}
	}
	if !stacked(s) {
		return []string{agentPath}, caps
	}
	args = []string{stackedAgent, "stack", strconv.Itoa(1 + len(s.Upper))}
	if s.Track {
		args = append(args, "track")
	}
	return args, append(caps, "CAP_SYS_ADMIN") // for as long as it mounts
}

// layers are the mounts that are given by descriptors, in their order.
func layers(s backend.Spec) []ociMount {
	if !stacked(s) {
		return []ociMount{{Destination: agentMount, Type: "erofs", Source: "agent", Options: []string{"ro", "nosuid", "nodev"}}}
	}
	// A "bind" without a lower side, see mountConfs, is a file system of memory
	// whose memory is the file of the writable layer.
	out := []ociMount{{Destination: upperMount, Type: "bind", Source: "upper",
		Options: []string{"mode=0755", "size=" + strconv.FormatInt(diskSize(s.Limits), 10)}}}
	for i := range 1 + len(s.Upper) {
		out = append(out, ociMount{Destination: layerMount + strconv.Itoa(i), Type: "erofs", Source: "layer", Options: []string{"ro"}})
	}
	return out
}

// mountConfs say what the root and the mounts of layers are made of.
func mountConfs(s backend.Spec) string {
	if !stacked(s) {
		return fmt.Sprintf("erofs:anon:size=%d,erofs:none", diskSize(s.Limits))
	}
	return "erofs:none,none:anon" + strings.Repeat(",erofs:none", 1+len(s.Upper))
}

// imageFDs are the placeholders of all images of s.
func imageFDs(s backend.Spec) string {
	n := 2
	if stacked(s) {
		n = 2 + len(s.Upper)
	}
	var out []string
	for i := range n {
		out = append(out, "{image"+strconv.Itoa(i)+"}")
	}
	return strings.Join(out, ",")
}

func marshalSpec(s backend.Spec) ([]byte, error) {
	// /run and /dev/shm are memory and count as memory; their size only keeps
	// one from taking all of it in a single file.
	half := "size=" + strconv.FormatInt(memorySize(s.Limits)/2, 10)
	args, caps := first(s)
	overlay := "anon"
	if stacked(s) {
		overlay = "none"
	}
	return json.Marshal(ociSpec{
		Version: "1.1.0",
		Process: ociProcess{
			User: map[string]uint32{"uid": 0, "gid": 0},
			Args: args, Env: []string{}, Cwd: "/",
			Capabilities: map[string][]string{"bounding": caps, "effective": caps, "permitted": caps},
			Rlimits:      []ociRlimit{{"RLIMIT_NOFILE", 65536, 65536}, {"RLIMIT_CORE", 0, 0}},
			NoNewPrivs:   true,
		},
		// The overlay over the root is the writable layer; file permissions say
		// where the guest's user may write.
		Root:     ociRoot{Path: "/"},
		Hostname: s.Hostname,
		Mounts: append([]ociMount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "nodev", "noexec", "ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "dev"},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", half}},
			{Destination: "/run", Type: "tmpfs", Source: "run", Options: []string{"nosuid", "nodev", "mode=0777", half}},
		}, layers(s)...),
		Linux: ociLinux{Namespaces: []map[string]string{
			{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source":  "image",
			"dev.gvisor.spec.rootfs.type":    "erofs",
			"dev.gvisor.spec.rootfs.overlay": overlay,
		},
	})
}

// bootArgs is the command line of gVisor's boot verb. The keeper fills in the
// descriptors. Everything optional is off: no debug, no host network, no host
// sockets or pipes, no direct access to host files, no settings of the host's.
func bootArgs(s backend.Spec, numCPU int) []string {
	mem := memorySize(s.Limits)
	return []string{
		"runsc-sandbox",
		"--platform=systrap", "--network=none", "--directfs=false",
		"--ignore-cgroups=true", "--host-settings=ignore", "--host-uds=none", "--host-fifo=none",
		"--overlay2=none", "--root=/",
		"boot",
		"--bundle=/", "--attached=true",
		"--gofer-mount-confs=" + mountConfs(s),
		"--gofer-filestore-fds={upper}",
		"--io-fds=" + imageFDs(s),
		"--start-sync-fd={sync}", "--controller-fd={control}", "--spec-fd={spec}",
		"--stdio-fds={agent}", "--stdio-fds={agent2}", "--stdio-fds={null}",
		"--total-memory=" + strconv.FormatInt(mem, 10), "--total-host-memory=" + strconv.FormatInt(mem, 10),
		"--cpu-num=" + strconv.Itoa(numCPU), "--product-name=berm",
		s.ID,
	}
}

// memorySize is what the guest is told it has; without a cap, a number that no
// host of today has less of is a lie, so it is the default cap's neighbour.
func memorySize(l api.Limits) int64 {
	if l.MemoryBytes <= 0 {
		return 8 << 30
	}
	return l.MemoryBytes
}

func diskSize(l api.Limits) int64 {
	if l.DiskBytes <= 0 {
		return 1 << 40
	}
	return l.DiskBytes
}
