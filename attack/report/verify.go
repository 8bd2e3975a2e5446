package report

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/bermhq/berm/attack"
)

// A Check is what can be said of a report that somebody was given.
type Check struct {
	OK      bool   `json:"ok"`      // nothing was changed since it was signed
	Problem string `json:"problem"` // what is wrong; "" if nothing is
	Trusted bool   `json:"trusted"` // it was signed by one of the keys that were named
	Key     string `json:"key"`     // who signed it; "" if nobody did
	Form    string `json:"form"`    // json or html
	Made    string `json:"made_by"` // the version that made it, as it says itself

	Report attack.Report `json:"-"` // fit to be shown
}

// MaxFile bounds a page: its document, and what was made of it.
const MaxFile = 6 * maxDocument

// Verify checks a report. trusted are public keys in hex; if there are any, one
// of them must have signed it. An error means that it could not be read.
func Verify(file []byte, trusted []string) (Check, error) {
	c := Check{Form: "json"}
	doc, err := document(file)
	if err != nil {
		return c, err
	}
	if isPage(file) {
		c.Form = "html"
	}
	rep, signed, err := parse(doc)
	if err != nil {
		return c, err
	}
	c.Report, c.Made = clean(rep), plain(rep.Build.Version)
	c.Problem = c.signature(rep.Signature, signed, trusted)
	if c.Problem == "" && !adds(rep) {
		c.Problem = "its summary does not count what its cases say"
	}
	if c.Problem == "" && c.Form == "html" {
		again, err := page(doc)
		if err != nil {
			return c, err
		}
		if at := differ(file, again); at >= 0 {
			c.Problem = fmt.Sprintf("the page is not what this version makes of the signed document in it: they differ from byte %d on. It says that version %.60q made it; if that is another, let that one check it, or make a new page: berm attack render", at, c.Made)
		}
	}
	c.OK = c.Problem == ""
	return c, nil
}

// signature says what is wrong with who signed.
func (c *Check) signature(s *attack.Signature, signed []byte, trusted []string) string {
	if s == nil {
		return "it is not signed"
	}
	value, err := hex.DecodeString(s.Value)
	if s.Algorithm != algorithm || !isKey(s.Key) || err != nil || len(value) != ed25519.SignatureSize || hex.EncodeToString(value) != s.Value {
		return "its signature is none that this version knows"
	}
	key, _ := hex.DecodeString(s.Key)
	if !ed25519.Verify(key, append([]byte(purpose), signed...), value) {
		return "it was changed after it was signed, or the signature is of something else"
	}
	c.Key = s.Key
	c.Trusted = slices.Contains(trusted, s.Key)
	if len(trusted) > 0 && !c.Trusted {
		return "it is signed by a key that you did not name: " + s.Key
	}
	return ""
}

// differ is where two files begin to; -1 if they do not.
func differ(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Where a page keeps its document.
const (
	docBegin = `<pre id="document">`
	docEnd   = `</pre>`
)

// isPage says whether a file is HTML.
func isPage(file []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(file), []byte("<")) }

// document finds the JSON in a file.
func document(file []byte) ([]byte, error) {
	switch {
	case len(file) > MaxFile:
		return nil, fmt.Errorf("it is larger than %d MiB", MaxFile>>20)
	case len(bytes.TrimSpace(file)) == 0:
		return nil, fmt.Errorf("%w: it is empty", errNoReport)
	case !isPage(file):
		return file, nil
	}
	_, rest, found := bytes.Cut(file, []byte(docBegin))
	doc, _, ended := bytes.Cut(rest, []byte(docEnd))
	if !found || !ended || bytes.Contains(rest, []byte(docBegin)) {
		return nil, fmt.Errorf("%w: there is not one document in the page", errNoReport)
	}
	return []byte(unescape.Replace(string(doc))), nil
}

// A document in a page is ASCII, and of that only these mean something there.
var (
	escape   = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	unescape = strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">")
)
