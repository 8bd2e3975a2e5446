// Package here takes a working tree into a sandbox and brings changes back: it
// finds what goes in, remembers what it has hashed before, compares what came
// out, and writes into the tree only what was asked for, never through a link.
//
// A Tree is scanned without following links, and uploaded as a chain of layers
// of which a server keeps all but the last change (Sync). What the sandbox
// changed comes as a tar that nobody trusts (ReadChanges) and is kept as a Run,
// beside what was there before; Diff shows one, and Apply writes it back.
//
// Nothing here runs a program, git least of all: its settings may name others.
package here

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// Bounds of a tree that goes in.
const (
	MaxEntries = 1 << 20
	MaxBytes   = 8 << 30
)

// Kinds of an Entry.
const (
	File = 'f'
	Dir  = 'd'
	Link = 'l'
)

// A Hash is the SHA-256 of a file's content.
type Hash [32]byte

// An Entry is one name in a tree. Two with the same kind, mode, content and
// target are the same, whenever they were made.
type Entry struct {
	Path   string // relative, with slashes, clean
	Kind   byte
	Mode   uint32 // permission bits
	Size   int64  // of a file, as it goes in
	Hash   Hash   // of a file
	Target string // of a link

	stamp  stamp
	was    int32 // one more than its place in the index of the last time; 0: not there
	known  bool  // Hash is that of the content, as long as stamp is the same
	secret bool  // the content looks like a credential
	out    bool  // it stayed out
	clean  bool  // what goes in is not what lies there: credentials were taken out
}

// A stamp is what lstat says of a file; if all of it is as before, so is the
// content, apart from what changed too soon after it was read.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // Unix nanoseconds
}

// same says that two entries look the same to a program.
func (e *Entry) same(o *Entry) bool {
	return e.Kind == o.Kind && e.Mode == o.Mode && e.Target == o.Target &&
		(e.Kind != File || e.Size == o.Size && e.Hash == o.Hash)
}

// A Skip is something of the tree that does not go in.
type Skip struct {
	Path string `json:"path"`
	Why  string `json:"why"` // one of the words below
}

// Why something is skipped.
const (
	WhyCredential = "credential" // looks like a key, a token or a password
	WhyExcluded   = "excluded"   // by a pattern of the caller's
	WhyIgnored    = "ignored"    // by a .gitignore
	WhySpecial    = "special"    // neither file, folder nor link
	WhyUnreadable = "unreadable" // to whoever calls
	WhyName       = "name"       // no layer can hold it, or it is Berm's own
)

// sortEntries sorts by path. Those of the last time have an order already.
func sortEntries(es []Entry) {
	slices.SortFunc(es, func(a, b Entry) int {
		if a.was > 0 && b.was > 0 {
			return int(a.was - b.was)
		}
		return strings.Compare(a.Path, b.Path)
	})
}

// lookup finds a path in sorted entries.
func lookup(es []Entry, path string) *Entry {
	i, ok := slices.BinarySearchFunc(es, path, func(e Entry, p string) int { return cmp.Compare(e.Path, p) })
	if !ok {
		return nil
	}
	return &es[i]
}

// parent is the folder of a path, "" for one at the top.
func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func refuse(code, message, hint string) error {
	return &api.Error{Code: code, Message: message, Hint: hint}
}
