package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/preset"
)

// A daemon gives up the rights of whoever started it, and with them the view of
// how their package managers are set up. So a small process that keeps both is
// started before: it reads the name of a preset and answers with what the client
// of that name says of itself. It speaks to no network; it ends with the daemon.

// A presetAnswer is one line of that process.
type presetAnswer struct {
	Name     string           `json:"name"`
	Settings *preset.Settings `json:"settings,omitempty"`
	Error    *api.Error       `json:"error,omitempty"`
}

const (
	presetsFor    = 10 * time.Minute // an answer is good for that long
	presetWait    = time.Minute
	maxPresetLine = 256 << 10
)

// RunPresets is the main of that process, and, as "fetch", of the one that asks
// registries for a run.
func RunPresets(args []string) error {
	if len(args) == 2 && args[0] == "fetch" {
		return runFetch(args[1])
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	names := make(chan string)
	go func() { // the end of the input ends a client that is still running, too
		defer cancel()
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 256)
		for in.Scan() {
			select {
			case names <- in.Text():
			case <-ctx.Done():
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case name := <-names:
			b, err := json.Marshal(askPreset(ctx, name))
			if err != nil {
				return err
			}
			if _, err := os.Stdout.Write(append(b, '\n')); err != nil {
				return nil
			}
		}
	}
}

func askPreset(ctx context.Context, name string) presetAnswer {
	a := presetAnswer{Name: name}
	s, err := preset.Ask(ctx, name)
	if err == nil {
		a.Settings = &s
		return a
	}
	if !errors.As(err, &a.Error) {
		a.Error = &api.Error{Code: api.CodeEgressUnavailable, Message: err.Error()}
	}
	return a
}

// presets is what a daemon's engine asks.
type presets struct {
	given map[string]policy.Preset // of the operator's file
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	lines *bufio.Reader

	mu    sync.Mutex // the process answers one at a time
	known map[string]knownPreset
}

type knownPreset struct {
	policy.Preset
	at time.Time
}

// newPresets starts the process, with the rights, the environment and the place
// of this one.
func newPresets(file, state string) (_ *presets, err error) {
	p := &presets{known: map[string]knownPreset{}}
	if file != "" {
		if p.given, err = ReadPresets(file); err != nil {
			return nil, err
		}
	}
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		ourIn.Close()
		return nil, err
	}
	defer theirOut.Close()
	p.in, p.out = ourIn, ourOut
	p.lines = bufio.NewReaderSize(ourOut, 4<<10)
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Args = []string{"berm", "presets", state} // whose it is, for ps
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Dir = theirIn, theirOut, "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C is the daemon's to handle
	if err := p.cmd.Start(); err != nil {
		p.in.Close()
		p.out.Close()
		return nil, fmt.Errorf("start the process that asks about presets: %w", err)
	}
	return p, nil
}

// close ends the process and whatever client it runs.
func (p *presets) close() {
	if p == nil {
		return
	}
	p.in.Close()
	p.out.Close()
	late := time.AfterFunc(3*time.Second, func() { p.cmd.Process.Kill() }) // in vain where it has more rights; it ends by itself
	defer late.Stop()
	p.cmd.Wait()
}

// find is what a preset stands for. It blocks for as long as a client and its
// registry take.
func (p *presets) find(name string) (policy.Preset, error) {
	if g, ok := p.given[name]; ok {
		return g, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k, ok := p.known[name]; ok && time.Since(k.at) < presetsFor {
		return k.Preset, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), presetWait)
	defer cancel()
	s, err := p.ask(name)
	var found policy.Preset
	if err == nil {
		found, err = preset.Complete(ctx, name, s)
	}
	var ae *api.Error
	if errors.As(err, &ae) { // the name is said by whoever asked
		without := *ae
		without.Message = strings.TrimPrefix(ae.Message, "preset:"+name+": ")
		return found, &without
	}
	if err == nil {
		p.known[name] = knownPreset{found, time.Now()}
	}
	return found, err
}

func (p *presets) ask(name string) (preset.Settings, error) {
	if len(name) > 64 || strings.ContainsAny(name, "\r\n") {
		return preset.Settings{}, errors.New("is not a name")
	}
	gone := func(err error) (preset.Settings, error) {
		return preset.Settings{}, &api.Error{Code: api.CodeEgressUnavailable, Message: "the process that asks this host's clients does not answer: " + err.Error(),
			Hint: "start the daemon again, or give it a presets file (berm help policy)"}
	}
	end := time.Now().Add(presetWait)
	p.in.SetWriteDeadline(end)
	p.out.SetReadDeadline(end)
	if _, err := io.WriteString(p.in, name+"\n"); err != nil {
		return gone(err)
	}
	for { // an answer that nobody waited for may still come first
		line, err := readLine(p.lines, maxPresetLine)
		if err != nil {
			return gone(err)
		}
		var a presetAnswer
		switch err := json.Unmarshal(line, &a); {
		case err != nil:
			return gone(err)
		case a.Name != name:
		case a.Settings != nil:
			return *a.Settings, nil
		case a.Error != nil:
			return preset.Settings{}, a.Error
		default:
			return gone(errors.New("an empty answer"))
		}
	}
}

// readLine reads a line of at most n bytes.
func readLine(r *bufio.Reader, n int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > n {
			return nil, errors.New("the answer is too long")
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}
