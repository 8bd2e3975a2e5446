package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/attack"
	"github.com/bermhq/berm/client"
)

// kernelWall runs programs on the host's own kernel, as containers do: in
// namespaces and an empty root of their own, as a user that nobody is, without
// capabilities. So what only the kernel's own words can say comes out, and
// nothing can be changed. Attacks that use things up stay in their sandbox: out
// here nothing would hold them.
var kernelWall = wall{
	name: "kernel", without: "programs run on the host's own kernel", quickest: "escape-read-version",
	handle: func(_ *client.Client, next http.Handler) http.Handler {
		k := &native{next: next, spaces: map[string][]byte{}}
		all, err := attack.Cases()
		if err != nil {
			panic(err)
		}
		for _, c := range all {
			if c.Family != "exhaustion" && len(c.Files) > 0 {
				k.harmless = append(k.harmless, c.Files[0].Data)
			}
		}
		return k
	},
}

// A native answers execs itself.
type native struct {
	next     http.Handler
	harmless [][]byte // programs that use nothing up

	mu     sync.Mutex
	spaces map[string][]byte // by sandbox: the archive of its workspace
}

const mostArchive = 8 << 20

func (k *native) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	id, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/"), "/")
	switch {
	case r.Method == http.MethodPut && what == "archive" && r.URL.Query().Get("path") == api.Workspace:
		b, err := io.ReadAll(io.LimitReader(r.Body, mostArchive))
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
			return
		}
		if slices.ContainsFunc(k.harmless, func(p []byte) bool { return bytes.Contains(b, p) }) {
			k.mu.Lock()
			k.spaces[id] = b
			k.mu.Unlock()
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	case r.Method == http.MethodPost && what == "exec":
		k.mu.Lock()
		space := k.spaces[id]
		k.mu.Unlock()
		if space == nil {
			break
		}
		if err := k.exec(rw, r, space); err != nil {
			http.Error(rw, err.Error(), http.StatusBadGateway)
		}
		return
	}
	k.next.ServeHTTP(rw, r)
}

// exec runs a command natively and tells of it as a server does.
func (k *native) exec(rw http.ResponseWriter, r *http.Request, space []byte) error {
	var req api.ExecRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&req); err != nil {
		return err
	}
	nc, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+api.ExecProtocol+"\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		return nil
	}
	f := &frames{nc: nc}
	began := time.Now()
	code, err := f.run(bare{Args: req.Args, Env: req.Env, Space: space})
	res := api.ExecResult{ExecID: "native", ExitCode: code, Ending: api.EndExit, CapsHit: []string{}, TimingsMS: map[string]float64{"total": float64(time.Since(began).Milliseconds())}}
	if err != nil {
		res.Ending, res.Reason = api.EndHostFailure, err.Error()
	}
	b, err := json.Marshal(res)
	if err != nil {
		return nil
	}
	f.write(api.FrameResult, b)
	return nil
}

// frames is what a server says on the connection of an exec.
type frames struct {
	mu sync.Mutex
	nc net.Conn
}

func (f *frames) write(kind byte, p []byte) {
	var h [api.FrameHeader]byte
	api.PutFrameHeader(&h, kind, len(p))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nc.Write(append(h[:], p...))
}

// A stream sends what is written in frames of one kind.
type stream struct {
	f    *frames
	kind byte
}

func (s stream) Write(p []byte) (int, error) {
	for part := range slices.Chunk(p, api.MaxFrame) {
		s.f.write(s.kind, part)
	}
	return len(p), nil
}

// mostTime is more than such a program may take.
const mostTime = 30 * time.Second

// run starts this program again, which becomes the command.
func (f *frames) run(b bare) (code int, err error) {
	how, err := json.Marshal(b)
	if err != nil {
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", nativePart)
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{r}
	cmd.Stdout, cmd.Stderr = stream{f, api.FrameStdout}, stream{f, api.FrameStderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	if err != nil {
		w.Close()
		return 0, err
	}
	late := time.AfterFunc(mostTime, func() { cmd.Process.Kill() }) // and all of its namespace with it
	defer late.Stop()
	w.Write(how)
	w.Close()
	err = cmd.Wait()
	if ee := new(exec.ExitError); err == nil || errors.As(err, &ee) && ee.Exited() {
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, err
}
