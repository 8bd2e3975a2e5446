// Package report gives a report of `berm attack` its forms, signs it and checks
// what somebody else was given.
//
// The signed text is the JSON document, in its canonical spelling (RFC 8785) and
// without its member "signature". The page for people is made from that document
// alone and carries it, so a page can be checked as a whole: the document by its
// signature, and everything else by making the page again.
//
// Reports travel, so every one of them is taken for hostile when it is read:
// bounded, refused if two readers could read it differently, and shown with
// nothing in it that hides, moves or runs.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bermhq/berm/attack"
)

// Forms are what a report can be written as.
var Forms = []string{"json", "junit", "html", "sarif"}

// Write gives a report one of its forms.
func Write(form string, rep attack.Report) ([]byte, error) {
	doc, err := marshal(rep)
	if err != nil {
		return nil, err
	}
	switch form {
	case "json":
		return doc, nil
	case "html":
		return page(doc)
	case "junit":
		return junit(clean(rep))
	case "sarif":
		return sarif(clean(rep))
	}
	return nil, fmt.Errorf("a report has no form %q", form)
}

// Read finds a report in its JSON or in its page, with nothing in its texts that
// a terminal obeys. It says nothing about who wrote it: see Verify.
func Read(file []byte) (attack.Report, error) {
	doc, err := document(file)
	if err != nil {
		return attack.Report{}, err
	}
	rep, _, err := parse(doc)
	return clean(rep), err
}

// Convert gives a report that was read another form, with the signature that it
// has where there is a place for one.
func Convert(form string, file []byte) ([]byte, error) {
	doc, err := document(file)
	if err != nil {
		return nil, err
	}
	rep, _, err := parse(doc)
	if err != nil {
		return nil, err
	}
	switch form { // with all that is in it, also what this version does not know
	case "json":
		return append(bytes.TrimSpace(doc), '\n'), nil
	case "html":
		return page(doc)
	}
	return Write(form, rep)
}

// marshal is the document as it is printed: one line.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// parse reads a document, and gives what its signature is over.
func parse(doc []byte) (rep attack.Report, signed []byte, err error) {
	t, err := readTree(doc)
	if err != nil {
		return rep, nil, err
	}
	top, ok := t.(map[string]any)
	if !ok || top["cases"] == nil || top["summary"] == nil {
		return rep, nil, errNoReport
	}
	if err := json.Unmarshal(doc, &rep); err != nil {
		return rep, nil, fmt.Errorf("%w: %.200s", errNoReport, err.Error())
	}
	if s, is := top["signature"]; is { // nothing may stand in it that it does not cover
		m, ok := s.(map[string]any)
		for _, name := range []string{"algorithm", "key", "value"} {
			_, is := m[name].(string)
			ok = ok && is
		}
		if !ok || len(m) != 3 {
			return rep, nil, fmt.Errorf("%w: its signature is none", errNoReport)
		}
	}
	delete(top, "signature")
	if err := bounds(rep); err != nil {
		return rep, nil, err
	}
	return rep, canonical(nil, top, false), nil
}

// bounds refuses what nobody attacked: a page is many times as large as its
// document, and grows with every name in it.
func bounds(rep attack.Report) error {
	families, rungs, walls := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range rep.Cases {
		families[r.Family], rungs[r.Isolation], walls[r.Wall] = true, true, true
	}
	if len(rep.Cases)+len(rep.Benign) > 10_000 || len(families) > 64 || len(rungs) > 16 || len(walls) > 256 || len(rep.Host.Vulnerabilities) > 256 || len(rep.Host.SecurityModules) > 64 {
		return errors.New("it is larger than any report of berm attack")
	}
	return nil
}

var errNoReport = errors.New("it is no report of berm attack")

// Adds says whether what a report counts is what it lists.
func adds(rep attack.Report) bool {
	s := attack.Sum(rep.Cases, rep.Benign)
	return s.Count == rep.Summary.Count && s.Findings == rep.Summary.Findings && s.FalseBlocks == rep.Summary.FalseBlocks &&
		slices.Equal(s.Families, rep.Summary.Families)
}
