package attack

// Walls are what keeps attacks in, by the name that cases give and what each
// does. For each there is a build that lacks it (cmd/berm-weak), on which the
// cases that name it go red, and no others.
var Walls = map[string]string{
	"environment":   "nothing of the caller's environment goes in",
	"files":         "the root inside is a template: no file of the host's is in it",
	"process":       "processes of the host cannot be seen or read",
	"kernel":        "programs run on a kernel of their own, in user space",
	"guest-user":    "programs run as a user that cannot touch the agent or the root's files",
	"filter":        "every process of a sandbox on the host has a filter on its system calls",
	"rights":        "none of them has capabilities, is root or can become it",
	"namespaces":    "each has namespaces and an empty root of its own",
	"cgroup":        "each is in cgroups that bound it whatever happens inside",
	"descriptors":   "nothing that the caller has open goes in",
	"network":       "a sandbox without a link has no network at all",
	"egress-policy": "what no rule allows is not reached",
	"memory":        "the cap on memory",
	"tasks":         "the cap on tasks",
	"disk":          "the cap on disk",
	"output":        "the cap on output",
	"time":          "the deadline",
	"cpu":           "the share of processors",
	"events":        "the budget of what one sandbox may have recorded",
	"artifacts":     "what is brought out is plain files below their folder",
	"archives":      "what is unpacked is bounded and stays below its folder",
	"terminal":      "what a sandbox says cannot steer a terminal through what Berm says of it",
	"agent-link":    "what the agent in a sandbox says is bounded and checked",
	"gateway-link":  "what the gateway of a sandbox asks for is decided again outside of it",
	"kernel-state":  "keys, shared memory and the memory of processes are kept by a kernel of their own",
	"here":          "what may be a credential stays out of a working tree that goes in as a copy",
	"token":         "an agent's token does no more than its ceiling",
	"tenant":        "a token sees and changes nothing of another tenant",
	"record":        "what was denied is recorded where nothing inside can touch it",
	"snapshot":      "what is published holds no credential",
	"teardown":      "what was started is ended and taken away",
}
