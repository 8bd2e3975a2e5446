package cli

import (
	"context"

	"github.com/bermhq/berm/attack/report"
)

const attackRenderAbout = `
REPORT is JSON or HTML that berm attack made. It is not checked, and its signature
is kept where the form has a place for one.

  berm attack --json -o report.json
  berm attack render report.json --format junit -o report.xml
  berm attack render report.json --format html -o report.html
`

func attackRenderVerb() verb {
	var o attackOut
	fs := o.flags()
	return verb{
		name: "render", own: true, summary: "give a report another form", usage: "--format FORM [-o FILE] REPORT",
		flags: func() flags { return fs }, about: attackRenderAbout,
		run: func(_ context.Context, env *Env, args []string) int {
			_, text, err := env.reportFile("render", fs, args)
			if err == errHelp {
				return help(env, env.Stdout, []string{"attack", "render"})
			}
			if err != nil {
				return env.fail(err)
			}
			if err = o.writable(env); err == nil {
				err = env.render(text, &o)
			}
			if err != nil {
				return env.fail(err)
			}
			return exitOK
		},
	}
}

// render gives a report another form. Where the signature stays, so does every
// byte that it is of.
func (env *Env) render(text []byte, o *attackOut) error {
	if !o.isTable() {
		b, err := report.Convert(o.form, text)
		if err != nil {
			return err
		}
		return o.put(env, b)
	}
	rep, err := report.Read(text)
	if err != nil {
		return err
	}
	v := attackView{env: env, out: env.Stdout}
	if o.file != "" {
		v.out = &o.text
	}
	for _, r := range rep.Cases {
		v.ended(r)
	}
	for _, b := range rep.Benign {
		v.worked(b)
	}
	v.sum(rep.Summary)
	if o.file == "" {
		return nil
	}
	return o.put(env, o.text.Bytes())
}
