package main

// sentryAttempts are what the stand-in of a sentry can try, by the names that
// cases give.
var sentryAttempts = map[string]func(*try){
	"nothing":          func(*try) {},
	"read-paths":       readPaths,
	"read-proc":        readProc,
	"read-descriptors": readDescriptors,
	"read-handles":     readHandles,
	"read-device":      readDevice,
	"write-templates":  writeTemplates,
	"write-disk":       writeDisk,

	"call-tcp":      callTCP,
	"call-udp":      callUDP,
	"call-abstract": callAbstract,
	"call-path":     callPath,
	"neighbour":     steerNeighbour,

	"signal":     signalHolder,
	"ptrace":     traceOthers,
	"root":       becomeRoot,
	"user-space": newNamespaces,
	"mount":      mountThings,
	"limits":     raiseLimits,
	"priority":   goFirst,
	"setns":      enterOthers,

	"io-uring":    openRing,
	"userfaultfd": openFaults,
	"bpf":         openBPF,
	"perf":        openPerf,
	"keys":        addKeys,
	"fanotify":    openFanotify,

	"tasks":    manyTasks,
	"memory":   muchMemory,
	"group":    leaveGroup,
	"children": leaveChildren,
	"deaf":     neverAnswer,

	"lies":        haveLies,
	"control":     babbleControl,
	"agent":       babbleAgent,
	"link":        babbleLink,
	"descriptors": sendDescriptors,
	"sockets":     babbleSockets,
}
