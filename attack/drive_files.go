package attack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// A hostile archive goes into a sandbox after the case's program has prepared
// the ground there, or while it goes on doing so.
type archive struct {
	entries []entry
	lands   []string // where it would come to lie if it were unpacked naively
	odd     bool     // what comes to lie in the workspace must be neither special nor run as its owner
	race    bool     // it is sent as long as the program runs
}

// An entry is written as it is: no library would.
type entry struct {
	name, link string
	kind       byte // as in tar.Header; 0 is a plain file with ownWord in it
	mode       int64
	size       int64 // 0 is the size of body
	body       string
}

const dropped = ownWord + "-file" // what archives drop

// pax is the record of a header that overrides what the next one says.
func pax(key, value string) entry {
	for n := len(key) + len(value) + 4; ; n++ {
		if line := fmt.Sprintf("%d %s=%s\n", n, key, value); len(line) == n {
			return entry{name: "pax", kind: tar.TypeXHeader, body: line}
		}
	}
}

// archives are all there are, by what they do.
var archives = map[string]archive{
	"dotdot": {
		entries: []entry{{name: "../../etc/" + dropped}, {name: "a/../../../etc/" + dropped}, {name: "../" + dropped}},
		lands:   []string{"/etc/" + dropped, "/" + dropped},
	},
	"absolute": {entries: []entry{{name: "/etc/" + dropped}, {name: "//etc/" + dropped}}, lands: []string{"/etc/" + dropped}},
	"link-folder": {
		entries: []entry{{name: "x", link: "/etc", kind: tar.TypeSymlink}, {name: "x/" + dropped}},
		lands:   []string{"/etc/" + dropped},
	},
	"link-file": {
		entries: []entry{{name: "f", link: "/etc/" + dropped, kind: tar.TypeSymlink}, {name: "f"}},
		lands:   []string{"/etc/" + dropped},
	},
	"link-chain": {
		entries: []entry{{name: "a", link: ".", kind: tar.TypeSymlink}, {name: "a/b", link: "../../etc", kind: tar.TypeSymlink}, {name: "a/b/" + dropped}},
		lands:   []string{"/etc/" + dropped},
	},
	"hard-link": {
		entries: []entry{{name: "h", link: "/etc/profile", kind: tar.TypeLink}, {name: "h"}, {name: "i", link: "../../etc/profile", kind: tar.TypeLink}, {name: "i"}},
		lands:   []string{"/etc/profile"},
	},
	"planted-link": {entries: []entry{{name: "d/" + dropped}}, lands: []string{"/etc/" + dropped}},
	"long-name": {
		entries: []entry{{name: "././@LongLink", kind: 'L', body: strings.Repeat("../", 60) + "etc/" + dropped + "\x00"}, {name: "honest"}},
		lands:   []string{"/etc/" + dropped},
	},
	"pax-name": {entries: []entry{pax("path", "../../etc/"+dropped), {name: "honest"}}, lands: []string{"/etc/" + dropped}},
	"pax-link": {
		entries: []entry{pax("linkpath", "/etc"), {name: "x", link: "here", kind: tar.TypeSymlink}, {name: "x/" + dropped}},
		lands:   []string{"/etc/" + dropped},
	},
	"pax-size": {entries: []entry{pax("size", "1099511627776"), {name: "honest"}, {name: "../" + dropped}}, lands: []string{"/" + dropped}},
	"modes":    {entries: []entry{{name: "setuid", mode: 0o6755}, {name: "both", mode: 0o7777}}, odd: true},
	"devices": {
		entries: []entry{{name: "disk", kind: tar.TypeBlock, mode: 0o666}, {name: "zero", kind: tar.TypeChar, mode: 0o666}, {name: "pipe", kind: tar.TypeFifo, mode: 0o666}},
		odd:     true,
	},
	"race": {entries: []entry{{name: "d/" + dropped}, {name: "d/e/" + dropped}}, lands: []string{"/etc/" + dropped, "/etc/e/" + dropped}, race: true},
}

// join sends the archive to the attempt's sandbox, and looks at what came of it.
func (t archive) join(a *attempt) {
	if t.race {
		a.during = func(ctx context.Context) {
			for ctx.Err() == nil {
				t.send(ctx, a)
			}
		}
	}
	a.after = func(ctx context.Context) error {
		if !t.race {
			t.send(ctx, a)
		}
		for _, path := range t.lands {
			if found, err := a.marked(ctx, path); err != nil {
				return err
			} else if found {
				a.o.Misplaced = append(a.o.Misplaced, "an archive that was unpacked in "+api.Workspace+" has written "+path)
			}
		}
		if t.odd {
			return a.ordinary(ctx)
		}
		return nil
	}
}

// send unpacks the archive in the sandbox. That it is refused is as good as that
// it is unpacked safely; that it takes for ever is not.
func (t archive) send(ctx context.Context, a *attempt) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxBring+5*time.Second)
	defer cancel()
	err := a.s.Client.TarIn(ctx, a.id, api.Workspace, bytes.NewReader(t.bytes()))
	var refused *api.Error
	if err != nil && ctx.Err() == nil && !errors.As(err, &refused) && a.o.Failure == "" { // a race is called off in the middle
		a.o.Failure = "send the archive: " + err.Error()
	}
	if took := time.Since(began); took > maxBring {
		a.o.Misplaced = append(a.o.Misplaced, fmt.Sprintf("an archive was unpacked for %.0f s", took.Seconds()))
	}
}

// marked says whether a file in the sandbox holds what hostile programs and
// archives of the suite write.
func (a *attempt) marked(ctx context.Context, path string) (bool, error) {
	r, err := a.s.Client.OpenFile(ctx, a.id, path)
	if e, is := err.(*api.Error); is && e.Code == api.CodeFileNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	out := newSink([]needle{{"the mark", ownWord}})
	_, err = io.Copy(out, io.LimitReader(r, maxArtifact))
	return out.found["the mark"], err
}

// ordinary notes what in the workspace is special or runs as its owner.
func (a *attempt) ordinary(ctx context.Context) error {
	var out bytes.Buffer
	res, err := a.s.Client.Exec(ctx, a.id, api.ExecRequest{Args: []string{"find", ".", "(", "-perm", "/7000", "-o", "!", "-type", "f", "!", "-type", "d", ")", "-ls"}},
		client.Stdio{Stdout: &bounded{&out, 4 << 10}})
	if err != nil || res.ExitCode != 0 {
		return fmt.Errorf("look at the workspace: exit code %d, %w", res.ExitCode, err)
	}
	if out.Len() > 0 {
		a.o.Misplaced = append(a.o.Misplaced, fmt.Sprintf("unpacked as more than a plain file: %.200q", out.String()))
	}
	return nil
}

// bytes is the archive as it goes over the wire.
func (t archive) bytes() []byte {
	var b bytes.Buffer
	for _, e := range t.entries {
		body := e.body
		if e.kind == 0 {
			e.kind, body = tar.TypeReg, ownWord
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		if e.size == 0 {
			e.size = int64(len(body))
		}
		b.Write(e.header())
		b.WriteString(body)
		b.Write(make([]byte, -len(body)&511))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

// header is one block: see the format of ustar.
func (e entry) header() []byte {
	h := make([]byte, 512)
	copy(h[0:100], e.name)
	copy(h[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00", e.mode, 0, 0, e.size, 0)) // its owner is root
	copy(h[148:], "        ")
	h[156] = e.kind
	copy(h[157:257], e.link)
	copy(h[257:], "ustar\x0000")
	copy(h[329:], "0000010\x000000001\x00")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}
