package here

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/bermhq/berm/api"
)

// maxShown is the longest file that is shown line by line.
const maxShown = 2 << 20

// Formats of a Diff.
const (
	Unified    = "unified"
	Stat       = "stat"
	NameStatus = "name-status"
)

// DiffOptions say how a diff is shown. The zero value is a unified diff that no
// terminal obeys.
type DiffOptions struct {
	Format string // "" is Unified
	Raw    bool   // bytes as they are, for a program that applies them
	Colour bool
}

// Select is the changes at or below the paths, or at those that a path matches
// as a glob; all of them for none. A path without any is an error.
func (r *Run) Select(paths []string) ([]*Change, error) {
	picked := make([]bool, len(r.List))
	for _, p := range paths {
		want := p
		if path.IsAbs(p) {
			want = strings.TrimPrefix(strings.TrimPrefix(path.Clean(p), r.Tree), "/")
			if p = path.Clean(p); p != r.Tree && !strings.HasPrefix(p, strings.TrimSuffix(r.Tree, "/")+"/") {
				return nil, refuse(api.CodeBadRequest, Printable(p)+": is not in "+r.Tree, "a path as berm diff shows it")
			}
		}
		want = path.Clean("/" + want)[1:]
		any := false
		for i := range r.List {
			name := r.List[i].Path
			ok := want == "" || name == want || strings.HasPrefix(name, want+"/")
			if !ok && strings.ContainsAny(want, "*?[") {
				ok, _ = path.Match(want, name)
			}
			picked[i] = picked[i] || ok
			any = any || ok
		}
		if !any {
			return nil, refuse(api.CodeBadRequest, Printable(p)+": nothing was changed there", "berm diff --name-status "+r.ID)
		}
	}
	var out []*Change
	for i := range r.List {
		if picked[i] || len(paths) == 0 {
			out = append(out, &r.List[i])
		}
	}
	return out, nil
}

// OutsideGit is the changes that belong to no git repository, and how many do.
func OutsideGit(list []*Change) (out []*Change, inside int) {
	for _, c := range list {
		if inGit(c.Path) {
			inside++
		} else {
			out = append(out, c)
		}
	}
	return out, inside
}

// Diff writes what the changes are. Contents and names are a stranger's: unless
// Raw is set nothing in them is obeyed by a terminal.
func (r *Run) Diff(w io.Writer, list []*Change, opt DiffOptions) error {
	b := bufio.NewWriter(w)
	p := &printer{r: r, w: b, opt: opt}
	for _, c := range list {
		if c.shown(&r.Changes) {
			p.change(c)
		}
	}
	if opt.Format == Stat {
		p.total()
	}
	return b.Flush()
}

// A printer writes changes one after the other.
type printer struct {
	r   *Run
	w   *bufio.Writer
	opt DiffOptions

	files, plus, minus int
}

// Status is the letter that git has for a change.
func (c *Change) Status() string {
	switch {
	case c.What == Added:
		return "A"
	case c.What == Removed:
		return "D"
	case c.Before.Kind != c.After.Kind:
		return "T"
	}
	return "M"
}

func (c *Change) slashed() string {
	if c.After.is("dir") || c.After == nil && c.Before.is("dir") {
		return c.Path + "/"
	}
	return c.Path
}

func (p *printer) change(c *Change) {
	switch p.opt.Format {
	case NameStatus:
		fmt.Fprintf(p.w, "%s\t%s\n", c.Status(), Printable(c.slashed()))
		return
	case Stat:
		p.stat(c)
		return
	}
	if c.Before != nil && c.After != nil && c.Before.Kind != c.After.Kind { // as git has it: one goes, one comes
		p.one(&Change{Path: c.Path, What: Removed, Before: c.Before, Old: c.Old})
		p.one(&Change{Path: c.Path, What: Added, After: c.After, At: c.At, Old: -1})
		return
	}
	p.one(c)
}

// gitMode is how git writes the mode of a side.
func gitMode(s *Side) string {
	switch s.Kind {
	case "dir":
		return fmt.Sprintf("040%03o", s.Mode)
	case "symlink":
		return "120000"
	}
	return fmt.Sprintf("100%03o", s.Mode)
}

func (p *printer) one(c *Change) {
	a, b := Printable("a/"+c.Path), Printable("b/"+c.Path)
	p.head("diff --git " + a + " " + b)
	switch {
	case c.Before == nil:
		p.head("new file mode " + gitMode(c.After))
		a = "/dev/null"
	case c.After == nil:
		p.head("deleted file mode " + gitMode(c.Before))
		b = "/dev/null"
	case c.Before.Mode != c.After.Mode:
		p.head("old mode " + gitMode(c.Before))
		p.head("new mode " + gitMode(c.After))
	}
	old, new, why := p.r.texts(c)
	if why != "" {
		p.head(fmt.Sprintf("Files %s and %s differ: %s", a, b, why))
		return
	}
	p.body(a, b, old, new)
}

func (p *printer) body(a, b string, old, new []byte) {
	if bytes.Equal(old, new) {
		return
	}
	if !isText(old) || !isText(new) {
		p.head("Binary files " + a + " and " + b + " differ")
		return
	}
	text := diff.Diff("a", old, "b", new)
	for range 3 { // its own head
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	p.head("--- " + a)
	p.head("+++ " + b)
	for line := range bytes.Lines(text) {
		p.line(bytes.TrimSuffix(line, []byte("\n")))
	}
}

func (p *printer) head(s string) { p.put("\x1b[1m", s) }

func (p *printer) put(colour, s string) {
	if p.opt.Colour && colour != "" {
		s = colour + s + "\x1b[0m"
	}
	p.w.WriteString(s)
	p.w.WriteByte('\n')
}

func (p *printer) line(l []byte) {
	s := string(l)
	if !p.opt.Raw {
		s = harmless(s)
	}
	colour := ""
	if len(l) > 0 {
		colour = map[byte]string{'+': "\x1b[32m", '-': "\x1b[31m", '@': "\x1b[36m"}[l[0]]
	}
	p.put(colour, s)
}

// texts are the contents of both sides, or why they cannot be shown.
func (r *Run) texts(c *Change) (old, new []byte, why string) {
	for _, s := range []*Side{c.Before, c.After} {
		if s.is("file") && s.Size > maxShown {
			return nil, nil, sizes(c) + ", too long to show"
		}
	}
	old, ok := r.oldText(c)
	if !ok {
		return nil, nil, sizes(c) + ", and what was there before is not there any more"
	}
	switch {
	case c.After.is("symlink"):
		new = []byte(c.After.Target)
	case c.After.is("file"):
		data, err := io.ReadAll(r.after(c))
		if err != nil || int64(len(data)) != c.After.Size {
			return nil, nil, "what came out cannot be read any more"
		}
		new = data
	}
	return old, new, ""
}

func (r *Run) oldText(c *Change) ([]byte, bool) {
	switch {
	case c.Before.is("symlink"):
		return []byte(c.Before.Target), true
	case !c.Before.is("file"):
		return nil, true
	case c.Before.SHA256 == sumOfNothing:
		return nil, true
	case c.Old >= 0 && r.old != nil:
		data, err := io.ReadAll(io.NewSectionReader(r.old, c.Old, c.Before.Size))
		return data, err == nil && int64(len(data)) == c.Before.Size
	}
	t, err := Open(r.Tree, Options{})
	if err != nil {
		return nil, false
	}
	defer t.Close()
	return t.content(c.Path, c.Before, maxShown)
}

const sumOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func sizes(c *Change) string {
	n := func(s *Side) string {
		if s == nil {
			return "nothing"
		}
		return fmt.Sprintf("%d bytes", s.Size)
	}
	return n(c.Before) + " before, " + n(c.After) + " after"
}

// stat is one line of a statistic.
func (p *printer) stat(c *Change) {
	p.files++
	name := Printable(c.slashed())
	old, new, why := p.r.texts(c)
	switch {
	case c.After.is("dir") || c.After == nil && c.Before.is("dir"):
		fmt.Fprintf(p.w, " %s | folder\n", name)
		return
	case why != "" || !isText(old) || !isText(new):
		fmt.Fprintf(p.w, " %s | %s\n", name, sizes(c))
		return
	}
	plus, minus := 0, 0
	text := diff.Diff("a", old, "b", new)
	for i, line := range bytes.Split(text, []byte("\n")) {
		switch {
		case i < 3 || len(line) == 0:
		case line[0] == '+':
			plus++
		case line[0] == '-':
			minus++
		}
	}
	p.plus, p.minus = p.plus+plus, p.minus+minus
	const most = 40
	up, down := plus, minus
	if all := plus + minus; all > most {
		up, down = (plus*most+all-1)/all, (minus*most+all-1)/all
	}
	bar := strings.Repeat("+", up) + strings.Repeat("-", down)
	if p.opt.Colour {
		bar = "\x1b[32m" + strings.Repeat("+", up) + "\x1b[31m" + strings.Repeat("-", down) + "\x1b[0m"
	}
	if plus+minus == 0 && c.Before != nil && c.After != nil {
		bar = fmt.Sprintf("mode %03o -> %03o", c.Before.Mode, c.After.Mode)
	}
	fmt.Fprintf(p.w, " %s | %d %s\n", name, plus+minus, bar)
}

func (p *printer) total() {
	count := func(n int, what string) string {
		if n != 1 {
			what += "s"
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	fmt.Fprintf(p.w, " %s changed, %s(+), %s(-)\n", count(p.files, "file"), count(p.plus, "insertion"), count(p.minus, "deletion"))
}
