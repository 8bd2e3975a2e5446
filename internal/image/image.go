// Package image decides what a sandbox boots: it turns a template into one
// read-only EROFS file and keeps it in a store, named by its content.
//
// A template is the word "host" (the interpreters and tools of this machine,
// copied once per state of the machine), a directory, or a tar archive of a
// root filesystem. Resolve answers with an image that is complete on disk;
// whether it had to be built or was there already is only a matter of time.
// Nothing in an image refers back to the host, so a package upgrade on the
// host never changes a running sandbox.
//
// Inside the package a template is first read into a tree of nodes, which holds
// names, modes and where each content comes from, and the writer lays that tree
// out. The tree is the only thing that templates can influence: every path of a
// hostile archive is resolved inside it, never on the host.
package image

import (
	"context"
	"time"

	"github.com/bermhq/berm/api"
)

// Host is the reference of the built-in template: the host's own tools.
const Host = "host"

// Default caps on the size of an image, in bytes.
const (
	DefaultMaxHostBytes = 2 << 30 // the host template
	DefaultMaxBytes     = 8 << 30 // directories and archives
)

// Image is one complete root filesystem in the store.
type Image struct {
	Name     string   // ^[a-z0-9]{16,64}$, from the content
	Path     string   // of the EROFS file
	Template string   // what it was made from: "host", or an absolute path
	Bytes    int64    // size of the file
	Built    bool     // false: it was in the store already
	LeftOut  []string // optional groups of the host template that did not fit
}

// Options adjust Resolve. The zero value is the documented default.
type Options struct {
	// MaxBytes caps the size of the image; 0 is DefaultMaxHostBytes for the
	// host template and DefaultMaxBytes for others. (Setting: template_max_bytes,
	// flag --template-max.)
	MaxBytes int64
	// Include lists further absolute host paths for the host template, each
	// taken whole, readable by others or not at all. Symlinks that lead out of
	// what is included stay as they are and dangle. (Setting:
	// template_include, flag --template-include.)
	Include []string
	// Exclude lists absolute paths that stay out of the image, with everything
	// below. For a directory or an archive they count from its own root.
	// (Setting: template_exclude, flag --template-exclude.)
	Exclude []string
	// Rustup lists homes of rustup, absolute host paths: the first that has a
	// default toolchain gives it to a host template whose host has no cargo of
	// its own.
	Rustup []string
	// HostRoot is where the host template finds the host; "" is "/".
	HostRoot string
	// Progress is called from one goroutine while an image is built, at most
	// some ten times a second; nil: nobody wants to know.
	Progress func(Progress)
}

// Phases of a build, as Progress names them.
const (
	PhaseWait   = "wait"   // another process builds the same image
	PhaseScan   = "scan"   // looking for what belongs in
	PhaseUnpack = "unpack" // decompressing an archive
	PhaseCopy   = "copy"   // writing the image
	PhaseDigest = "digest" // naming it by its content
)

// Progress says how far a build is.
type Progress struct {
	Phase string
	Done  int64 // bytes
	Total int64 // bytes; 0: not known yet
	Files int   // files seen so far
}

// meter passes progress on, but not too often.
type meter struct {
	ctx  context.Context
	call func(Progress)
	now  Progress
	last time.Time
}

func newMeter(ctx context.Context, call func(Progress)) *meter {
	return &meter{ctx: ctx, call: call}
}

// phase starts a phase of total bytes.
func (m *meter) phase(name string, total int64) {
	m.now.Phase, m.now.Done, m.now.Total = name, 0, total
	if name == PhaseScan || name == PhaseCopy {
		m.now.Files = 0
	}
	m.say(true)
}

// add counts bytes and files. Its error is that of the context: the one place
// where long loops learn that nobody waits any more.
func (m *meter) add(bytes int64, files int) error {
	m.now.Done += bytes
	m.now.Files += files
	m.say(false)
	return m.ctx.Err()
}

func (m *meter) say(must bool) {
	if m.call == nil {
		return
	}
	if now := time.Now(); must || now.Sub(m.last) > 100*time.Millisecond {
		m.last = now
		m.call(m.now)
	}
}

func fail(code, message, hint string) error {
	return &api.Error{Code: code, Message: message, Hint: hint}
}
