package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/attack"
	"github.com/bermhq/berm/attack/report"
)

// attackOut is where a report goes, and as what. The zero value is a table, as
// it comes, on standard output.
type attackOut struct {
	form string // "" for table
	file string // "" for standard output
	key  *report.Key
	text bytes.Buffer // the table, where a file shall have it
}

var attackForms = append([]string{"table"}, report.Forms...)

func (o *attackOut) flags() flags {
	return flags{
		{name: "format", value: strings.Join(attackForms, "|"), help: "how to report (default: table)", set: func(s string) error {
			if !slices.Contains(attackForms, s) {
				return &fault{"--format " + s, "is not one of " + strings.Join(attackForms, ", "), "berm attack --format json"}
			}
			o.form = s
			return nil
		}},
		{name: "json", help: "the same as --format json", set: func(s string) error {
			if o.form = ""; s == "true" {
				o.form = "json"
			}
			return nil
		}},
		{name: "output", short: "o", value: "FILE", help: "write the report there, and the table to standard output", set: func(s string) error {
			if o.file = s; s == "-" {
				o.file = ""
			}
			return nil
		}},
	}
}

func (o *attackOut) isTable() bool { return o.form == "" || o.form == "table" }

// ready says what stands in the way of a report before anything is attacked.
func (o *attackOut) ready(env *Env) error {
	if err := o.writable(env); err != nil || !o.signs() || env.StateFor == nil {
		return err
	}
	dir, err := env.StateFor(env.StateDir)
	if err != nil {
		return err
	}
	k, err := report.OpenKey(dir)
	o.key = &k
	return err
}

func (o *attackOut) writable(env *Env) error {
	if o.form == "html" && o.file == "" && isTerminal(env.Stdout) {
		return &fault{"--format html", "would write a page to your terminal", "--format html -o report.html"}
	}
	if fi, err := os.Stat(o.file); o.file != "" && (err != nil || fi.Mode().IsRegular()) {
		f, err := os.CreateTemp(filepath.Dir(o.file), ".berm-*") // as writeWhole will
		if err != nil {
			return &fault{o.file, unwrapPath(err).Error(), "name a file in a folder that you can write"}
		}
		f.Close()
		os.Remove(f.Name())
	}
	return nil
}

// signs says whether the form has a place for a signature.
func (o *attackOut) signs() bool { return o.form == "json" || o.form == "html" }

// table is where rows of the table go.
func (o *attackOut) table(env *Env) io.Writer {
	switch {
	case o.isTable() && o.file != "":
		return &o.text
	case o.isTable() || o.file != "":
		return env.Stdout
	}
	return io.Discard
}

// deliver signs a report and brings it where it shall be.
func (o *attackOut) deliver(env *Env, rep attack.Report) error {
	if len(rep.Cases)+len(rep.Benign) == 0 { // a part of an attack, which tells another process
		return nil
	}
	rep.Build = env.build()
	if o.key != nil {
		if err := o.key.Sign(&rep); err != nil {
			return err
		}
	}
	if o.isTable() {
		return o.put(env, o.text.Bytes())
	}
	b, err := report.Write(o.form, rep)
	if err == nil {
		err = o.put(env, b)
	}
	if err == nil && rep.Signature != nil && o.file != "" {
		env.note("attack: %s is signed by %s", o.file, rep.Signature.Key)
	}
	return err
}

// put writes a report that is made.
func (o *attackOut) put(env *Env, b []byte) error {
	if o.file != "" {
		return newFile(o.file, bytes.NewReader(b))
	}
	if _, err := env.Stdout.Write(b); err != nil {
		return &fault{"standard output", unwrapPath(err).Error(), "send it to a place that takes it"}
	}
	return nil
}

// build says what this program is, as exactly as can be said. What cannot be
// read is left out.
func (env *Env) build() attack.Build {
	b := attack.Build{Version: env.Version.Version, Commit: env.Version.Commit, Go: env.Version.Go, BinarySHA256: digest("/proc/self/exe")}
	if env.Runtime != nil {
		if path, err := env.Runtime(env.StateDir); err == nil {
			b.RuntimeSHA256 = digest(path)
		}
	}
	return b
}

// digest is the SHA-256 of a file; "" if it cannot be read.
func digest(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// command is what a person types to attack in the same way.
func (o *attackOptions) command() string {
	args := []string{"berm", "attack"}
	if len(o.only) > 0 {
		args = append(args, "--only", strings.Join(o.only, ","))
	}
	if len(o.rungs) > 0 {
		args = append(args, "--isolation", strings.Join(o.rungs, ","))
	}
	if o.external != "" {
		args = append(args, "--against", o.external)
	}
	if o.short {
		args = append(args, "--short")
	}
	if o.tools != "" {
		args = append(args, "--tools", o.tools)
	}
	return shellLine(args)
}
