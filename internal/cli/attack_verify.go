package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/bermhq/berm/attack/report"
)

const attackVerifyAbout = `
REPORT is JSON or HTML that berm attack made; - is standard input. The document
is checked by its signature, and a page is made again and compared byte for byte.
--key names the keys one of which must have signed it: in hexadecimal, or a file.
The public key of a state directory is its attack.pub; get it from those whose
report it is, and not from the report.

Exit code 0 if it is good, 1 if it is not or if none of the keys signed it, 125
if it cannot be read.

  berm attack verify report.html --key attack.pub
`

func attackVerifyVerb() verb {
	var keys []string
	var asJSON bool
	fs := flags{
		{name: "key", value: "KEY|FILE", help: "a public key that you trust; several are one of them", set: func(s string) error {
			k, err := report.PublicKey(s)
			if err != nil {
				return &fault{"--key " + shellLine([]string{s}), unwrapPath(err).Error(), "berm attack verify REPORT --key DIR/attack.pub"}
			}
			keys = append(keys, k)
			return nil
		}},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "verify", own: true, summary: "check who signed a report, and that nothing in it was changed", usage: "[--key KEY|FILE] [--json] REPORT",
		flags: func() flags { return fs }, about: attackVerifyAbout,
		run: func(_ context.Context, env *Env, args []string) int {
			file, text, err := env.reportFile("verify", fs, args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"attack", "verify"})
			}
			if err != nil {
				return env.fail(err)
			}
			c, err := report.Verify(text, keys)
			if err != nil {
				return env.fail(&fault{file, err.Error(), "berm attack --format json -o report.json"})
			}
			code := exitOK
			if !c.OK {
				code = 1
			}
			if asJSON {
				return max(code, env.print(c))
			}
			env.showCheck(file, c)
			return code
		},
	}
}

// showCheck says in words what `berm attack verify` found.
func (env *Env) showCheck(file string, c report.Check) {
	fact := func(ok bool, yes, no string) string {
		if ok {
			return yes
		}
		return no
	}
	s := c.Report.Summary
	rows := [][2]string{{"report", fact(c.OK, "good: nothing was changed since it was signed", "BAD: "+c.Problem)}}
	if c.Key != "" {
		rows = append(rows, [2]string{"signed by", c.Key + fact(c.Trusted, " (trusted: you named it)", " (not one that you named)")})
	}
	rows = append(rows,
		[2]string{"says", fmt.Sprintf("%d cases: %d contained, %d breached, %d inconclusive; %d findings", s.Cases, s.Contained, s.Breached, s.Inconclusive, s.Findings)},
		[2]string{"of", c.Report.Target},
		[2]string{"made by", "berm " + c.Made + c.Report.Date.UTC().Format(", 2006-01-02 15:04 UTC")})
	env.facts(rows)
	if c.OK && !c.Trusted {
		env.note("%s: anybody can sign; name the key that you know it must be", file)
		fmt.Fprintf(env.Stderr, "try: %s\n", shellLine([]string{"berm", "attack", "verify", file, "--key", "attack.pub"}))
	}
}

// reportFile reads the one file that a verb is given.
func (env *Env) reportFile(name string, fs flags, args []string) (file string, text []byte, err error) {
	args, err = append(append(flags{}, fs...), globalFlags(env)...).among(args)
	if err == nil {
		err = argCount("attack "+name, args, 1, 1)
	}
	if err != nil {
		return "", nil, err
	}
	r := io.Reader(env.Stdin)
	if file = args[0]; file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", nil, &fault{file, unwrapPath(err).Error(), "berm attack " + name + " REPORT"}
		}
		defer f.Close()
		r = f
	}
	if text, err = io.ReadAll(io.LimitReader(r, report.MaxFile+1)); err != nil {
		return "", nil, &fault{file, unwrapPath(err).Error(), ""}
	}
	return file, text, nil
}
