package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Exit codes beside the guest's own.
const (
	codeStill  = 124 // the time limit ended it
	codeSilent = 125 // it ended without a word about its command
)

// boot runs one machine to its end. What it leaves is the log.
func boot(args []string) (int, error) {
	fs := flag.NewFlagSet("boot", flag.ExitOnError)
	kernel := fs.String("kernel", "", "bzImage `file`")
	initrd := fs.String("initrd", "", "initramfs `file`")
	var disks []string
	fs.Func("disk", "a raw image, vda, vdb and so on; what is written is forgotten", func(s string) error {
		disks = append(disks, s)
		return nil
	})
	keep := fs.Bool("keep", false, "keep what is written to the first disk")
	more := fs.String("append", "", "kernel `parameters`")
	mem := fs.Int("memory", 3072, "MiB")
	cpus := fs.Int("cpus", 1, "processors")
	logName := fs.String("log", "", "`file` for the console and all that the guest says; it is appended to")
	limit := fs.Duration("limit", 10*time.Minute, "end the machine after this `time`")
	still := fs.Duration("still", 5*time.Minute, "end it when it has said nothing for this `time`")
	asJSON := fs.Bool("json", false, "test2json events on standard output")
	if err := fs.Parse(args); err != nil {
		return 0, err
	}
	log, err := os.OpenFile(*logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()

	params := "console=ttyS0 panic=-1 reboot=t " + steady() + " " + *more
	argv := []string{
		"-M", "pc,usb=off", "-accel", "tcg,tb-size=256", "-cpu", "max", "-m", strconv.Itoa(*mem), "-smp", strconv.Itoa(*cpus),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", *kernel, "-initrd", *initrd, "-append", params,
		"-serial", "file:/dev/fd/3", "-serial", "stdio", "-monitor", "none",
		"-object", "rng-random,id=r,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=r",
	}
	for i, d := range disks {
		snapshot := "on"
		if *keep && i == 0 {
			snapshot = "off"
		}
		argv = append(argv, "-drive", fmt.Sprintf("if=none,id=d%d,format=raw,file=%s,snapshot=%s", i, d, snapshot), "-device", fmt.Sprintf("virtio-blk-pci,drive=d%d", i))
	}
	return machine(argv, log, *limit, *still, *asJSON)
}

// steady are the parameters without which a kernel under emulation now and then
// stands still while it measures its clock.
func steady() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`(?m)^cpu MHz\s*:\s*([0-9.]+)`).FindSubmatch(b); m != nil {
		if mhz, err := strconv.ParseFloat(string(m[1]), 64); err == nil {
			return fmt.Sprintf("tsc_early_khz=%d tsc=reliable", int(mhz*1000))
		}
	}
	return "tsc=reliable"
}

// machine runs QEMU and sees to its end, whatever happens to this process.
func machine(argv []string, log *os.File, limit, still time.Duration, asJSON bool) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// A reader of its own for the console: QEMU truncates what it opens by name.
	cr, cw, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", argv...)
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{cw}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(log, "\n# %s\n# qemu-system-x86_64 %s\n", time.Now().UTC().Format(time.RFC3339), strings.Join(argv, " "))
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w (try: sudo apt-get install -y --no-install-recommends qemu-system-x86)", err)
	}
	cw.Close()
	quiet := time.AfterFunc(still, cancel)
	var console sync.WaitGroup
	console.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := cr.Read(buf)
			log.Write(buf[:n])
			if err != nil {
				return
			}
			quiet.Reset(still)
		}
	})
	code := listen(out, log, asJSON, func() { quiet.Reset(still) })
	err = cmd.Wait()
	quiet.Stop()
	console.Wait()
	switch {
	case code >= 0:
		return code, nil
	case ctx.Err() != nil:
		fmt.Fprintf(log, "\n# ended from outside: %v\n", context.Cause(ctx))
		fmt.Fprintln(os.Stderr, "v2rig: the machine was ended: it ran for longer than its limit, or said nothing for too long")
		return codeStill, nil
	}
	fmt.Fprintf(os.Stderr, "v2rig: the machine ended without a result: %v\n", err)
	return codeSilent, nil
}

// listen reads what the guest says until it ends. Lines "##package PATH" begin
// the output of a test binary, "##exit CODE" ends it and is the last word.
func listen(in io.Reader, log io.Writer, asJSON bool, alive func()) int {
	code := -1
	var events *converter
	r := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			alive()
			line = strings.ReplaceAll(line, "\r\n", "\n")
			io.WriteString(log, strings.ReplaceAll(line, "\x16", ""))
			word, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch {
			case word == "##package" || word == "##end":
				events.close()
				events = nil
				if asJSON && word == "##package" {
					events = newConverter(arg)
				}
			case word == "##exit":
				if n, err := strconv.Atoi(arg); err == nil {
					code = n
				}
			case events != nil:
				events.write(line)
			default:
				io.WriteString(os.Stdout, line)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				fmt.Fprintln(os.Stderr, "v2rig:", err)
			}
			events.close()
			return code
		}
	}
}

// A converter is one `go tool test2json`.
type converter struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func newConverter(pkg string) *converter {
	c := &converter{cmd: exec.Command("go", "tool", "test2json", "-t", "-p", pkg)}
	c.cmd.Stdout, c.cmd.Stderr = os.Stdout, os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "v2rig:", err)
		return nil
	}
	return c
}

func (c *converter) write(s string) { io.WriteString(c.in, s) }

func (c *converter) close() {
	if c != nil {
		c.in.Close()
		c.cmd.Wait()
	}
}
