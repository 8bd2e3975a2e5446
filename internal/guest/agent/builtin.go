package agent

import (
	"context"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// A stdio is what a builtin sees of the world.
type stdio struct {
	ctx context.Context // done when it must end
	p   *localProc
	in  io.Reader
	out io.Writer
	err io.Writer
}

type builtin func(io *stdio, args []string) guest.Exit

// command finds a builtin; these are all the commands of a Local:
//
//	true, false, exit N   end with a status
//	echo WORDS            to stdout; warn WORDS the same to stderr
//	cat [FILES]           files or stdin to stdout
//	env, pwd              the environment, the directory
//	sleep SECONDS         waits
//	yes [WORD]            floods stdout for ever
//	put FILE WORDS        writes a file
//	hog BYTES             acts as if it took memory: reaching the cap ends it
//	forks N [SECONDS]     acts as if it had N children: staying at the cap ends it
//	fill                  acts as if it filled the disk
//	sh -c "A; B"          runs them one after the other; words end at blanks
func command(name string) builtin {
	switch name {
	case "true":
		return func(*stdio, []string) guest.Exit { return guest.Exit{} }
	case "false":
		return func(*stdio, []string) guest.Exit { return guest.Exit{Code: 1} }
	case "exit":
		return func(_ *stdio, args []string) guest.Exit { return guest.Exit{Code: int(arg(args)) & 0xff} }
	case "echo":
		return func(s *stdio, args []string) guest.Exit { return say(s.out, args) }
	case "warn":
		return func(s *stdio, args []string) guest.Exit { return say(s.err, args) }
	case "cat":
		return cat
	case "env":
		return env
	case "pwd":
		return pwd
	case "sleep":
		return sleep
	case "yes":
		return yes
	case "put":
		return put
	case "hog":
		return hog
	case "forks":
		return forks
	case "fill":
		return fill
	case "sh":
		return sh
	}
	return nil
}

func arg(args []string) float64 {
	if len(args) < 2 {
		return 0
	}
	n, _ := strconv.ParseFloat(args[1], 64)
	return n
}

func say(w io.Writer, args []string) guest.Exit {
	return done(io.WriteString(w, strings.Join(args[1:], " ")+"\n"))
}

// done is what a write leads to: nobody reads, and SIGPIPE ends it.
func done[N int | int64](_ N, err error) guest.Exit {
	if err != nil {
		return guest.Exit{Signal: 13}
	}
	return guest.Exit{}
}

func (s *stdio) file(name string) (string, error) {
	if !path.IsAbs(name) {
		name = path.Join("/", s.p.s.Dir, name)
	}
	return s.p.l.Files().abs(name)
}

func cat(s *stdio, args []string) guest.Exit {
	if len(args) == 1 {
		return done(io.Copy(s.out, s.in))
	}
	for _, name := range args[1:] {
		full, err := s.file(name)
		if err == nil {
			var f *os.File
			if f, err = openRegular(full); err == nil {
				_, err = io.Copy(s.out, f)
				f.Close()
			}
		}
		if err != nil {
			r := failure(err)
			io.WriteString(s.err, "cat: "+name+": "+r.Text+"\n")
			return guest.Exit{Code: 1}
		}
	}
	return guest.Exit{}
}

func env(s *stdio, _ []string) guest.Exit {
	for _, e := range s.p.s.Env {
		if _, err := io.WriteString(s.out, e+"\n"); err != nil {
			return guest.Exit{Signal: 13}
		}
	}
	return guest.Exit{}
}

func pwd(s *stdio, _ []string) guest.Exit {
	return done(io.WriteString(s.out, path.Join("/", s.p.s.Dir)+"\n"))
}

func sleep(s *stdio, args []string) guest.Exit {
	select {
	case <-time.After(time.Duration(arg(args) * float64(time.Second))):
	case <-s.ctx.Done():
	}
	return guest.Exit{}
}

func yes(s *stdio, args []string) guest.Exit {
	word := "y"
	if len(args) > 1 {
		word = args[1]
	}
	line := strings.Repeat(word+"\n", 16<<10/(len(word)+1)+1)
	for s.ctx.Err() == nil {
		if _, err := io.WriteString(s.out, line); err != nil {
			return guest.Exit{Signal: 13}
		}
	}
	return guest.Exit{}
}

func put(s *stdio, args []string) guest.Exit {
	if len(args) < 2 {
		return guest.Exit{Code: 2}
	}
	full, err := s.file(args[1])
	if err == nil {
		err = os.WriteFile(full, []byte(strings.Join(args[2:], " ")+"\n"), 0o644)
	}
	if err != nil {
		r := failure(err)
		io.WriteString(s.err, "put: "+args[1]+": "+r.Text+"\n")
		return guest.Exit{Code: 1}
	}
	return guest.Exit{}
}

func hog(s *stdio, args []string) guest.Exit {
	n := int64(arg(args))
	if c := s.p.s.MemoryBytes; c > 0 && n >= c {
		return guest.Exit{Signal: 9, EndedBy: guest.EndedMemory, Caps: []string{guest.CapMemory}, MemoryPeak: c}
	}
	return guest.Exit{MemoryPeak: n}
}

func forks(s *stdio, args []string) guest.Exit {
	n := int64(arg(args))
	c := s.p.s.Pids
	if c <= 0 || n < c {
		return guest.Exit{PidsPeak: n + 1}
	}
	s.p.sights <- guest.Exit{Caps: []string{guest.CapProcesses}, PidsPeak: c}
	if len(args) < 3 {
		args = []string{"", "", "1"}
	}
	sleep(s, args[1:])
	return guest.Exit{Signal: 9, EndedBy: guest.EndedProcesses, Caps: []string{guest.CapProcesses}, PidsPeak: c}
}

func fill(s *stdio, _ []string) guest.Exit {
	io.WriteString(s.err, "fill: no space left on device\n")
	return guest.Exit{Code: 1, Caps: []string{guest.CapDisk}}
}

func sh(s *stdio, args []string) (x guest.Exit) {
	if len(args) != 3 || args[1] != "-c" {
		return guest.Exit{Code: 2}
	}
	for line := range strings.SplitSeq(args[2], ";") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		run := command(words[0])
		if run == nil {
			io.WriteString(s.err, "sh: "+words[0]+": not found\n")
			x = guest.Exit{Code: 127}
			continue
		}
		if x = run(s, words); words[0] == "exit" || x.Signal != 0 || s.ctx.Err() != nil {
			break
		}
	}
	return x
}
