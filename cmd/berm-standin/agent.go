package main

import "golang.org/x/sys/unix"
import "os"

// standAsAgent is PID 1 of a guest; descriptor 0 is the stream to the host.
func standAsAgent() {
	unix.Chdir("/")
	(&speaker{rw: os.NewFile(0, "host"), attempts: agentAttempts}).serve()
}

var agentAttempts = map[string]func(*try){"nothing": func(*try) {}}
