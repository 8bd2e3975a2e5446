package template

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
)

// Bounds on a maker. Its memory is bounded softly first, so that it collects
// garbage rather than die.
const (
	makerTime   = 30 * time.Minute
	makerMemory = 3 << 30
	makerHeap   = "GOMEMLIMIT=1536MiB"
)

// order is what a maker reads from its standard input: a task and which
// descriptors came along, from 3 up. The end of the input ends the maker.
type order struct {
	Task    task `json:"task"`
	Archive bool `json:"archive,omitempty"`
	Spool   bool `json:"spool,omitempty"`
	Out     bool `json:"out,omitempty"`
	Below   int  `json:"below,omitempty"`
}

// make has a maker do a task.
func (s *Store) make(ctx context.Context, t task, f files, progress func(api.TemplateProgress)) (made, error) {
	if s.opt.Maker == "" {
		return t.run(ctx, f, progress)
	}
	if t.Kind != taskExport { // which waits for whoever reads it, and holds little
		select {
		case s.makers <- struct{}{}:
			defer func() { <-s.makers }()
		case <-ctx.Done():
			return made{}, ctx.Err()
		}
	}
	o := order{Task: t, Archive: f.archive != nil, Spool: f.spool != nil, Out: f.out != nil, Below: len(f.below)}
	in, err := json.Marshal(o)
	if err != nil {
		return made{}, err
	}
	uid := 0
	var flags uintptr
	if os.Geteuid() == 0 {
		lease, err := jail.LeaseUID()
		if err != nil {
			return made{}, err
		}
		defer lease.Release()
		uid, flags = lease.UID, jail.WorkerNamespaces
	}
	ctx, cancel := context.WithTimeoutCause(ctx, makerTime, errMakerTime)
	defer cancel()
	ctx, enough := watchRoom(ctx, s.dir, spare)
	defer enough()
	cmd := exec.CommandContext(ctx, s.opt.Maker)
	// Twice the limit: what unpacks may be more than what an image may have.
	cmd.Args = []string{"berm", "maker", strconv.Itoa(uid), s.dir, strconv.FormatInt(2*t.MaxBytes+1<<30, 10)}
	cmd.Env, cmd.Dir = []string{makerHeap}, "/"
	for _, file := range append([]*os.File{f.archive, f.spool, f.out}, f.below...) {
		if file != nil {
			cmd.ExtraFiles = append(cmd.ExtraFiles, file)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: flags}
	said := &tail{}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return made{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return made{}, err
	}
	if err := cmd.Start(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return made{}, cause
		}
		return made{}, fmt.Errorf("start a maker: %w", err)
	}
	defer stdin.Close() // it is over by then
	var reply reply
	_, err = stdin.Write(append(in, '\n'))
	if err == nil {
		reply, err = hear(stdout, progress)
	}
	if err != nil { // it died, or does not say what a maker says
		cmd.Process.Kill()
	}
	stdin.Close()
	werr := cmd.Wait()
	switch {
	case errors.Is(context.Cause(ctx), errMakerTime):
		return made{}, errMakerTime
	case errors.Is(context.Cause(ctx), errNoRoom):
		return made{}, errNoRoom
	case ctx.Err() != nil:
		return made{}, ctx.Err()
	case err == nil && reply.Error != nil:
		return made{}, reply.Error
	case err == nil && reply.Made != nil:
		return *reply.Made, nil
	}
	return made{}, died(err, werr, said)
}

var errMakerTime = &api.Error{Code: api.CodeTemplateInvalid, Message: fmt.Sprintf("it takes longer than %v to unpack", makerTime), Hint: "make it smaller"}

// died says how a maker ended that gave no answer.
func died(err, werr error, said *tail) error {
	why := "it gave no answer"
	switch {
	case werr != nil:
		why = werr.Error()
	case err != nil && !errors.Is(err, io.EOF):
		why = err.Error()
	}
	if line, _, _ := bytes.Cut(said.b, []byte("\n")); len(line) > 0 {
		why += ": " + strconv.Quote(string(line[:min(len(line), 200)]))
	}
	return &api.Error{Code: api.CodeTemplateInvalid, Message: "the process that unpacks it died: " + why,
		Hint: "it may be too large to unpack within the memory that is granted for it, or made to break it"}
}

// tail keeps the beginning of what a maker complained of.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), 4096-len(t.b))]...)
	return len(b), nil
}

// RunMaker is the main of a maker. Its arguments are the uid to become, or 0
// where it is not root, a directory to hide, and the most bytes of a file.
func RunMaker(args []string) error {
	bad := errors.New("maker: not started by berm")
	if len(args) != 3 {
		return bad
	}
	uid, err := strconv.Atoi(args[0])
	if err != nil {
		return bad
	}
	most, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil || most <= 0 {
		return bad
	}
	signal.Ignore(syscall.SIGXFSZ) // a write that is too long is an error
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	var o order
	if err != nil || json.Unmarshal(line, &o) != nil || o.Below < 0 || o.Below > 400 {
		return bad
	}
	if err := jail.ConfineMaker(args[1], uid, jail.MakerLimits{File: most, Data: makerMemory}); err != nil {
		return fmt.Errorf("maker: %w", err)
	}
	go func() { // whoever started us is gone
		in.ReadByte()
		os.Exit(1)
	}()
	out := json.NewEncoder(os.Stdout)
	made, err := o.Task.run(context.Background(), o.files(), func(p api.TemplateProgress) { out.Encode(reply{Progress: &p}) })
	if err == nil {
		return out.Encode(reply{Made: &made})
	}
	var known *api.Error
	if !errors.As(err, &known) {
		known = &api.Error{Code: api.CodeTemplateInvalid, Message: err.Error(), Hint: "make it anew"}
		if errors.Is(err, unix.ENOSPC) {
			known.Code, known.Hint = api.CodeHostFailure, "make room where the state directory is"
		}
	}
	return out.Encode(reply{Error: known})
}

// files are the descriptors that came along.
func (o order) files() (f files) {
	next := 3
	take := func() *os.File {
		unix.CloseOnExec(next)
		f := os.NewFile(uintptr(next), "given")
		next++
		return f
	}
	if o.Archive {
		f.archive = take()
	}
	if o.Spool {
		f.spool = take()
	}
	if o.Out {
		f.out = take()
	}
	for range o.Below {
		f.below = append(f.below, take())
	}
	return f
}

// A reply is one line of a maker.
type reply struct {
	Progress *api.TemplateProgress `json:"progress,omitempty"`
	Error    *api.Error            `json:"error,omitempty"`
	Made     *made                 `json:"made,omitempty"`
}

// made is what a maker says of what it made.
type made struct {
	image.Made
	Image   *found `json:"image,omitempty"`   // what an archive holds
	Spooled bool   `json:"spooled,omitempty"` // the plain archive is in the spool
}

// found is a container image that an archive holds.
type found struct {
	Ref      string             `json:"ref,omitempty"`
	Digest   string             `json:"digest,omitempty"`
	Platform string             `json:"platform,omitempty"`
	Config   api.TemplateConfig `json:"config,omitzero"`
	Layers   int                `json:"layers"`
}
