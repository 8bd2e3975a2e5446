package report

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/attack"
)

// small is a report that can be tampered with at every byte.
func small(t testing.TB) attack.Report {
	rep := sample(t)
	rep.Cases, rep.Benign = rep.Cases[:3], rep.Benign[:1]
	rep.Summary = attack.Sum(rep.Cases, rep.Benign)
	rep.Summary.Seconds = 2.5
	return rep
}

func check(t *testing.T, file []byte, trusted ...string) Check {
	t.Helper()
	c, err := Verify(file, trusted)
	if err != nil {
		t.Fatal(err)
	}
	if c.OK != (c.Problem == "") || c.Trusted && c.Key == "" {
		t.Fatalf("%+v", c)
	}
	return c
}

func TestVerify(t *testing.T) {
	rep, k := signed(t, sample(t))
	_, other := signed(t, sample(t))
	for _, form := range []string{"json", "html"} {
		b := written(t, form, rep)
		if c := check(t, b); !c.OK || c.Trusted || c.Key != k.Public() || c.Form != form || c.Made != "v0.7.0" {
			t.Errorf("%s: %+v", form, c)
		}
		if c := check(t, b, other.Public(), k.Public()); !c.OK || !c.Trusted {
			t.Errorf("%s, by one of two keys: %+v", form, c)
		}
		if c := check(t, b, other.Public()); c.OK || c.Trusted || !strings.Contains(c.Problem, "did not name: "+k.Public()) {
			t.Errorf("%s, by another key: %+v", form, c)
		}
		unsigned := rep
		unsigned.Signature = nil
		if c := check(t, written(t, form, unsigned)); c.OK || c.Problem != "it is not signed" {
			t.Errorf("%s: %+v", form, c)
		}
	}
	// The same document, spelled in other ways.
	b := written(t, "json", rep)
	var indented bytes.Buffer
	json.Indent(&indented, b, " ", "\t")
	var loose any
	json.Unmarshal(b, &loose)
	sorted, _ := json.Marshal(loose)
	for name, same := range map[string][]byte{"indented": indented.Bytes(), "sorted and escaped": sorted} {
		if c := check(t, same); !c.OK {
			t.Errorf("%s: %+v", name, c)
		}
		if c := check(t, must(page(same))); !c.OK {
			t.Errorf("page of %s: %+v", name, c)
		}
	}
}

// TestTamperJSON: no byte can be another one, unless the document says the same.
func TestTamperJSON(t *testing.T) {
	rep, k := signed(t, small(t))
	b := written(t, "json", rep)
	_, want, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for i := range b {
		for _, bit := range []byte{1, 0x20} {
			bad := bytes.Clone(b)
			bad[i] ^= bit
			c, err := Verify(bad, nil)
			if err == nil && c.OK {
				if _, got, _ := parse(bad); !bytes.Equal(got, want) || c.Report.Signature.Key != k.Public() {
					t.Fatalf("byte %d may be %q: %s", i, bad[i], bad)
				}
				held++
			}
		}
		if c, err := Verify(b[:i], nil); err == nil && c.OK && i < len(b)-1 {
			t.Fatalf("cut at %d", i)
		}
	}
	if held > 8 { // the white space at its end
		t.Errorf("%d changes are none", held)
	}
}

// TestTamperPage: no byte of a page can be another one at all. All of its
// document are tried, and some of the rest: for each of those a page is made.
func TestTamperPage(t *testing.T) {
	rep, _ := signed(t, small(t))
	b := written(t, "html", rep)
	begin, end := bytes.Index(b, []byte(docBegin)), bytes.LastIndex(b, []byte(docEnd))
	for i := range b {
		if i%47 != 0 && (i < begin || i > end+len(docEnd)) {
			continue
		}
		bad := bytes.Clone(b)
		bad[i] ^= 1 << (i % 7)
		if c, err := Verify(bad, nil); err == nil && c.OK {
			t.Fatalf("byte %d may be %q after %q", i, bad[i], b[max(0, i-60):i])
		}
	}
	for _, cut := range []int{0, 1, len(b) / 2, len(b) - 1} {
		if c, err := Verify(b[:cut], nil); err == nil && c.OK {
			t.Errorf("cut at %d", cut)
		}
	}
	for _, more := range []string{"\n", " ", "<!-- x -->", "<script>"} {
		if c := check(t, append(bytes.Clone(b), more...)); c.OK {
			t.Errorf("%q may follow", more)
		}
		if c := check(t, append([]byte(more), b...)); c.OK && more != "" {
			t.Errorf("%q may stand before it", more)
		}
	}
}

// TestLies are what somebody would do who wants a better report.
func TestLies(t *testing.T) {
	rep, k := signed(t, sample(t))
	_, stranger := signed(t, sample(t))
	doc, web := string(written(t, "json", rep)), string(written(t, "html", rep))
	change := func(in, from, to string) string {
		t.Helper()
		out := strings.Replace(in, from, to, 1)
		if out == in {
			t.Fatalf("%q is not in it", from)
		}
		return out
	}
	nicer := rep
	nicer.Cases = append([]attack.Result(nil), rep.Cases...)
	for i := range nicer.Cases {
		nicer.Cases[i].Verdict = attack.Contained
	}
	uncounted := nicer // signed by its maker, and not what it says
	if err := k.Sign(&uncounted); err != nil {
		t.Fatal(err)
	}
	better := nicer
	better.Summary = attack.Sum(nicer.Cases, nicer.Benign)
	resigned := better
	if err := stranger.Sign(&resigned); err != nil {
		t.Fatal(err)
	}
	swapped := better
	swapped.Signature = &attack.Signature{Algorithm: "ed25519", Key: k.Public(), Value: resigned.Signature.Value}
	rekeyed := rep
	rekeyed.Signature = &attack.Signature{Algorithm: "ed25519", Key: stranger.Public(), Value: rep.Signature.Value}
	weak := rep
	weak.Signature = &attack.Signature{Algorithm: "none", Key: k.Public(), Value: rep.Signature.Value}
	_, rest, _ := strings.Cut(web, docBegin)
	inside, _, _ := strings.Cut(rest, docEnd)
	other := string(written(t, "html", resigned))
	_, rest, _ = strings.Cut(other, docBegin)
	otherInside, _, _ := strings.Cut(rest, docEnd)
	for name, tt := range map[string]struct{ file, problem string }{
		"verdict flipped":                  {change(doc, `"verdict":"breached"`, `"verdict":"contained"`), "changed after"},
		"evidence changed":                 {change(doc, "was called 2 times", "was called 0 times"), "changed after"},
		"a case removed":                   {change(doc, `{"id":"`+rep.Cases[3].ID, `{"id":"other`), "changed after"},
		"another key in the signature":     {string(written(t, "json", rekeyed)), "changed after"},
		"the signature of another report":  {string(written(t, "json", swapped)), "changed after"},
		"no algorithm":                     {string(written(t, "json", weak)), "none that this version knows"},
		"signature removed":                {doc[:strings.LastIndex(doc, `,"signature"`)] + "}", "not signed"},
		"signed anew":                      {string(written(t, "json", resigned)), "did not name"},
		"signed, and does not add up":      {string(written(t, "json", uncounted)), "summary"},
		"page: headline":                   {change(web, "1 attack got through</h1>", "Every attack was contained</h1>"), "page is not"},
		"page: evidence":                   {change(web, "<p>TCP to 10.9.8.7:80", "<p>TCP to nobody"), "page is not"},
		"page: colour":                     {change(web, "--breached:#bf2f1d", "--breached:#2f7a5c"), "page is not"},
		"page: hidden by style":            {change(web, "<section id=\"findings\">", "<section id=\"findings\" hidden>"), "page is not"},
		"page: a comment":                  {change(web, "<main>", "<main><!-- -->"), "page is not"},
		"page: document of another":        {strings.Replace(web, inside, otherInside, 1), "did not name"},
		"page: own document, other's page": {strings.Replace(other, otherInside, inside, 1), "page is not"},
		"page: document changed":           {change(web, `"verdict":"breached"`, `"verdict":"contained"`), "changed after"},
		"page: signed anew":                {other, "did not name"},
	} {
		if c := check(t, []byte(tt.file), k.Public()); c.OK || !strings.Contains(c.Problem, tt.problem) {
			t.Errorf("%s: %+v", name, c.Problem)
		}
	}
	for name, file := range map[string]string{
		"two documents":       change(web, docBegin, docBegin+"{}"+docEnd+docBegin),
		"no document":         change(web, docBegin, "<pre>"),
		"a verdict twice":     change(doc, `"verdict":"breached"`, `"verdict":"breached","verdict":"contained"`),
		"two reports":         doc + doc,
		"not a report":        `{"ok":true}`,
		"a list":              `[1]`,
		"a number":            `7`,
		"nothing":             "",
		"white":               " \n",
		"another page":        "<html></html>",
		"not UTF-8":           change(doc, "berm", "ber\xff"),
		"a number too large":  change(doc, `"cpus":2`, `"cpus":1e999`),
		"deep":                strings.Repeat("[", 100000),
		"deep and closed":     `{"cases":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `,"summary":{}}`,
		"many":                `{"cases":[` + strings.Repeat("0,", maxNodes) + `0],"summary":{}}`,
		"ten thousand cases":  `{"cases":[` + strings.Repeat("{},", 10_000) + `{}],"summary":{}}`,
		"large":               strings.Repeat(" ", maxDocument) + doc,
		"cases of other kind": `{"cases":[7],"summary":{}}`,
		"half a page":         web[:len(web)-len(inside)/2-200],
	} {
		if c, err := Verify([]byte(file), nil); err == nil {
			t.Errorf("%s can be read: %+v", name, c)
		}
	}
}

func TestOpenKey(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenKey(dir)
	if err != nil || again.Public() != k.Public() {
		t.Fatalf("another key the second time: %v", err)
	}
	private, public := filepath.Join(dir, keyFile), filepath.Join(dir, publicFile)
	fi, err := os.Stat(private)
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if pub, err := PublicKey(public); err != nil || pub != k.Public() {
		t.Errorf("%q, %v", pub, err)
	}
	if pub, err := PublicKey(k.Public()); err != nil || pub != k.Public() {
		t.Errorf("%q, %v", pub, err)
	}
	if _, err := PublicKey(private); err == nil {
		t.Error("a private key is taken for a public one")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("%v", entries)
	}
	done := make(chan string)
	shared := t.TempDir()
	for range 8 {
		go func() {
			k, err := OpenKey(shared)
			if err != nil {
				done <- err.Error()
				return
			}
			done <- k.Public()
		}()
	}
	first := <-done
	for range 7 {
		if k := <-done; k != first {
			t.Errorf("%s and %s", k, first)
		}
	}
	for name, spoil := range map[string]func() error{
		"others can read it": func() error { return os.Chmod(private, 0o640) },
		"a link":             func() error { os.Rename(private, dir+"/x"); return os.Symlink(dir+"/x", private) },
		"a folder":           func() error { os.Remove(private); return os.Mkdir(private, 0o700) },
		"no key":             func() error { os.Remove(private); return os.WriteFile(private, []byte("no key\n"), 0o600) },
		"another's half":     func() error { return os.WriteFile(private, fmt.Appendf(nil, "%x%064x\n", k.private.Seed(), 7), 0o600) },
		"too long":           func() error { return os.WriteFile(private, bytes.Repeat([]byte("a"), 5000), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKey(dir); err == nil {
			t.Errorf("%s: it signs all the same", name)
		}
		os.RemoveAll(private)
		os.WriteFile(private, fmt.Appendf(nil, "%x\n", []byte(k.private)), 0o600)
	}
	if k2, err := OpenKey(dir); err != nil || k2.Public() != k.Public() {
		t.Errorf("%v", err)
	}
}

// TestCanonical has the examples of RFC 8785 that concern us, and figures.
func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":[true,null,{"z":"","y":2}]}`:                       `{"a":[true,null,{"y":2,"z":""}],"b":1}`,
		`[333333333.33333329, 1E3, 4.50, 2e-3, 0.000000001, -0, -0.0]`: `[333333333.3333333,1000,4.5,0.002,1e-9,0,0]`,
		`[1e-7, 0.000001, 123456789012345]`:                            `[1e-7,0.000001,123456789012345]`,
		`"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`:              `"€$\u000f\nA'B\"\\\\\"/"`,
		`{"\u20ac":1,"\r":2,"1":3,"\ud83d\ude00":4,"\ufb33":5}`:        "{\"\\r\":2,\"1\":3,\"€\":1,\"\U0001F600\":4,\"\ufb33\":5}",
	} {
		v, err := readTree([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(canonical(nil, v, false)); got != want {
			t.Errorf("%s is %s, not %s", in, got, want)
		}
		ascii := canonical(nil, v, true)
		v2, err := readTree(ascii)
		if err != nil || string(canonical(nil, v2, false)) != want || bytes.ContainsFunc(ascii, func(r rune) bool { return r > '~' }) {
			t.Errorf("in ASCII: %s, %v", ascii, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	k := Key{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))}
	rep := small(f)
	if err := k.Sign(&rep); err != nil {
		f.Fatal(err)
	}
	doc := written(f, "json", rep)
	_, want, err := parse(doc)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(doc)
	f.Add(written(f, "html", rep))
	f.Add([]byte(`{"cases":[],"summary":{"families":null},"signature":{}}`))
	f.Add([]byte(docBegin + `{"cases":[],"summary":{}}` + docEnd))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := Verify(file, []string{k.Public()})
		if err != nil {
			return
		}
		if c.OK { // nobody else has the key
			if _, got, err := parse(must(document(file))); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%q is good", file)
			}
		}
		if _, err := Write("html", c.Report); err != nil {
			t.Error(err)
		}
	})
}

// FuzzEscape puts text into every field and looks for it outside of text.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"</script><script>alert(1)</script>", "</pre><pre id=\"document\">", `" onload="x`, "\u202e\x1b[31m", "]]>", "<!--", "{{.}}", "[x](https://e.test)", "&lt;b&gt;", "[[ATTACHMENT|/etc/passwd]]", "{0}", "##vso[x]", "\x00\xff"} {
		f.Add(s, uint64(1))
	}
	k := Key{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))}
	f.Fuzz(func(t *testing.T, s string, seed uint64) {
		rep := small(t)
		rep.Cases[1].Verdict, rep.Cases[2].Seen = attack.Breached, yes(false)
		r := rand.New(rand.NewPCG(seed, 1))
		for _, at := range []*string{&rep.Target, &rep.Command, &rep.Host.Kernel, &rep.Host.CPUModel, &rep.Build.Version, &rep.Build.Commit, &rep.Cases[0].ID, &rep.Cases[1].Goal,
			&rep.Cases[1].Evidence, &rep.Cases[2].Wall, &rep.Cases[2].Family, &rep.Cases[0].Isolation, &rep.Cases[0].Boundary, &rep.Benign[0].ID, &rep.Benign[0].Evidence, &rep.Suite.SHA256} {
			if r.IntN(3) > 0 {
				*at = strings.ToValidUTF8(s, "?")
			}
		}
		rep.Host.Vulnerabilities = map[string]string{s: s}
		rep.Summary = attack.Sum(rep.Cases, rep.Benign)
		if err := k.Sign(&rep); err != nil {
			t.Fatal(err)
		}
		b := written(t, "html", rep)
		if c, err := Verify(b, []string{k.Public()}); err != nil || !c.OK || !c.Trusted {
			t.Errorf("%v %+v", err, c)
		}
		checkPage(t, b)
		checkJUnit(t, written(t, "junit", rep), rep)
		checkSARIF(t, written(t, "sarif", rep), rep)
	})
}

func TestSignatureIsOfThisAlone(t *testing.T) {
	rep, k := signed(t, small(t))
	_, text, err := parse(written(t, "json", rep))
	if err != nil {
		t.Fatal(err)
	}
	value, _ := hex.DecodeString(rep.Signature.Value)
	if ed25519.Verify(k.private.Public().(ed25519.PublicKey), text, value) {
		t.Error("the signature is of the bare text: it could be one of something else")
	}
}
