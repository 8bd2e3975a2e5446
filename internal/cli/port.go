package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const portAbout = `
Without PORT it lists the ports that something listens on inside. With PORT it
listens on this host's loopback (the same port, or a free one where that is taken),
prints the address, and passes every connection to that port of the sandbox until
you leave: put & behind it to go on. While it runs every user of this host can
connect, without a token. With - it connects standard input and output instead.
Where that will not do: GET /v1/sandboxes/ID/proxy/PORT/ needs a token, and for it
nothing listens.

  berm port $SB 8000 &
  berm port $SB 5432 --local 15432
  echo PING | berm port $SB 6379 -
`

// maxForwards is how many connections are passed on at a time.
const maxForwards = 256

func portVerb() verb {
	var asJSON bool
	local := int64(-1)
	fs := flags{
		{name: "local", value: "PORT", help: "the port to listen on here; 0 is any", set: wholeNumber(&local)},
		{name: "json", help: "print the list, or the address, as JSON", set: toggle(&asJSON)},
	}
	return verb{
		name: "port", summary: "reach a port inside a sandbox from this host", usage: "[FLAG...] SANDBOX [PORT [-]]", flags: func() flags { return fs }, about: portAbout,
		run: ask("port", fs, 1, 3, func(ctx context.Context, a *asker, args []string) error {
			port := 0
			if len(args) > 1 {
				var err error
				if port, err = strconv.Atoi(args[1]); err != nil || port < 1 || port > 65535 {
					return &fault{shellLine(args[1:2]), "is not a port", "berm port " + shellLine(args[:1])}
				}
			}
			if len(args) == 3 && args[2] != "-" {
				return &fault{shellLine(args[2:]), "is not -", "berm port " + shellLine(args[:2]) + " --local PORT"}
			}
			if local > 65535 {
				return &fault{fmt.Sprintf("--local %d", local), "is not a port", "--local 0"}
			}
			id, err := a.sandbox(ctx, args[0])
			if err != nil {
				return err
			}
			switch len(args) {
			case 1:
				return a.listPorts(ctx, id, asJSON)
			case 3:
				return a.portStdio(ctx, id, port)
			}
			return a.forward(ctx, id, port, int(local), asJSON)
		}),
	}
}

func (a *asker) listPorts(ctx context.Context, id string, asJSON bool) error {
	list, err := a.Ports(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printed(nonNil(list))
	}
	t := newTable(a.Stdout, "PORT", "PROXY")
	for _, p := range list {
		t.row(p.Port, strings.TrimPrefix(p.ProxyURL, "http://berm")) // which is what it is called over its socket
	}
	t.end()
	return nil
}

// portStdio connects standard input and output with a port.
func (a *asker) portStdio(ctx context.Context, id string, port int) error {
	s, err := a.DialPort(ctx, id, port)
	if err != nil {
		return err
	}
	defer s.Close()
	go func() {
		io.Copy(s, a.Stdin)
		s.CloseWrite()
	}()
	o := &outputs{}
	_, err = io.Copy(o.show(a.Stdout), s)
	o.close()
	return err
}

func (a *asker) forward(ctx context.Context, id string, port, local int, asJSON bool) error {
	want := local
	if local < 0 {
		want = port
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(want)))
	if err != nil && local < 0 && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, os.ErrPermission)) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return &fault{fmt.Sprintf("127.0.0.1:%d", want), err.Error(), "--local 0"}
	}
	ctx, in := a.interruptible(ctx, func() {}, time.Second)
	defer in.stop()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	if asJSON {
		err = a.printed(map[string]any{"address": l.Addr().String(), "sandbox_id": id, "port": port})
	} else {
		_, err = fmt.Fprintln(a.Stdout, l.Addr())
	}
	if err != nil {
		l.Close()
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, maxForwards)
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return left(ctx, exitCode(1))
			}
			return err
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			nc.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			defer nc.Close()
			dialCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
			s, err := a.DialPort(dialCtx, id, port)
			cancel()
			var ae *api.Error
			if err != nil {
				if ctx.Err() == nil {
					a.explain(err)
				}
				if errors.As(err, &ae) && (ae.Code == api.CodeSandboxEnded || ae.Code == api.CodeSandboxNotFound) {
					l.Close() // there will be nothing to pass on to
				}
				return
			}
			defer context.AfterFunc(ctx, func() { s.Close(); nc.Close() })()
			splice(nc.(*net.TCPConn), s)
		})
	}
}

// splice copies both ways, each to its own end.
func splice(nc *net.TCPConn, s *client.Stream) {
	defer s.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := io.Copy(s, nc); err == nil {
			s.CloseWrite()
		} else {
			s.Close()
		}
	}()
	if _, err := io.Copy(nc, s); err == nil {
		nc.CloseWrite()
	} else {
		nc.Close()
	}
	<-done
}
