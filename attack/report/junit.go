package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/bermhq/berm/attack"
)

// The elements of JUnit's XML that readers of it agree on, in the order that the
// strict ones want.
type (
	suites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		totals
		Suites []suite `xml:"testsuite"`
	}
	totals struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`
		seconds  float64
	}
	suite struct {
		Name      string `xml:"name,attr"`
		Timestamp string `xml:"timestamp,attr"`
		totals
		Properties []property `xml:"properties>property"`
		Cases      []testcase `xml:"testcase"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testcase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Time    string   `xml:"time,attr"`
		Skipped *outcome `xml:"skipped"`
		Error   *outcome `xml:"error"`
		Failure *outcome `xml:"failure"`
		Out     string   `xml:"system-out,omitempty"`
	}
	outcome struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// junit is a suite for each family on each rung, and one for benign programs. A
// breach, an attempt that nobody saw and a false block fail; what could not be
// judged is an error; what does not apply or was not run is skipped.
func junit(rep attack.Report) ([]byte, error) {
	out := suites{Name: "berm attack"}
	out.seconds = rep.Summary.Seconds
	at := map[string]int{}
	suiteOf := func(name, isolation string) *suite {
		full := strings.TrimSpace(name + " " + isolation)
		i, known := at[full]
		if !known {
			i, at[full] = len(out.Suites), len(out.Suites)
			out.Suites = append(out.Suites, suite{Name: text(full), Timestamp: rep.Date.UTC().Format("2006-01-02T15:04:05"), Properties: properties(rep)})
		}
		return &out.Suites[i]
	}
	for _, r := range rep.Cases {
		s := suiteOf(r.Family, r.Isolation)
		c := testcase{Class: class(r.Isolation, r.Family), Name: text(r.ID)}
		first, _, _ := strings.Cut(r.Evidence, "; ")
		switch {
		case r.Verdict == attack.Breached:
			c.Failure = &outcome{"breached: " + text(first), "breached", text(r.Evidence)}
		case r.Unseen():
			c.Failure = &outcome{"contained, and nobody saw it", "unseen", text(r.Evidence)}
		case r.Verdict == attack.Contained:
			c.Out = text(r.Evidence)
		case r.Verdict == attack.NotApplicable:
			c.Skipped = &outcome{Message: text(r.Evidence)}
		default:
			c.Error = &outcome{"could not be judged", "inconclusive", text(r.Evidence)}
		}
		s.add(c, r.Seconds)
	}
	for _, b := range rep.Benign {
		c := testcase{Class: class(b.Isolation, "benign"), Name: text(b.ID), Out: text(b.Evidence)}
		switch {
		case b.NotRun:
			c.Skipped, c.Out = &outcome{Message: text(b.Evidence)}, ""
		case b.Hindered:
			c.Failure, c.Out = &outcome{"it does normal work and was hindered", "false-block", text(b.Evidence)}, ""
		}
		suiteOf("benign", b.Isolation).add(c, b.Seconds)
	}
	for i := range out.Suites {
		t := &out.Suites[i].totals
		t.Time = seconds(t.seconds)
		out.Tests, out.Failures, out.Errors, out.Skipped = out.Tests+t.Tests, out.Failures+t.Failures, out.Errors+t.Errors, out.Skipped+t.Skipped
	}
	out.Time = seconds(out.seconds)
	b, err := xml.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(append([]byte(xml.Header), bytes.TrimSpace(b)...), '\n'), nil
}

func (s *suite) add(c testcase, took float64) {
	c.Time = seconds(took)
	s.Cases = append(s.Cases, c)
	s.Tests, s.seconds = s.Tests+1, s.seconds+took
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

func properties(rep attack.Report) []property {
	return []property{
		{"target", text(rep.Target)}, {"berm", text(rep.Build.Version)}, {"binary_sha256", text(rep.Build.BinarySHA256)},
		{"suite_sha256", text(rep.Suite.SHA256)}, {"kernel", text(rep.Host.Kernel)}, {"arch", text(rep.Host.Arch)},
	}
}

// class is how readers group: its dots are theirs.
func class(isolation, family string) string {
	dash := func(s string) string { return strings.ReplaceAll(text(s), ".", "-") }
	return "berm.attack." + dash(isolation) + "." + dash(family)
}

func seconds(f float64) string { return fmt.Sprintf("%.3f", f) }

// text keeps a program in a sandbox from having files of the reader's attached:
// some take a path in double brackets for that.
func text(s string) string { return strings.ReplaceAll(s, "[[", "[ [") }
