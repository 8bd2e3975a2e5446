package deb

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/bermhq/berm/api"
)

// A mirror serves a signed suite of a few packages.
type mirror struct {
	files map[string][]byte
	key   *openpgp.Entity
	hits  atomic.Int64
	url   string
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// newMirror serves suite "stable" with apt and a1, signed by a key of its own.
func newMirror(t *testing.T) *mirror {
	t.Helper()
	key, err := openpgp.NewEntity("Archive", "", "archive@mirror.test", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	m := &mirror{files: map[string][]byte{}, key: key}
	var index bytes.Buffer
	for _, d := range []struct{ name, extra string }{{"apt", "Essential: yes\n"}, {"a1", "Depends: apt\n"}} {
		data := debOf(d.name, d.extra, nil, testFile{'f', "./usr/bin/" + d.name, d.name, 0o755})
		m.files["/d/pool/"+d.name+".deb"] = data
		fmt.Fprintf(&index, "Package: %s\nVersion: 1\nArchitecture: amd64\n%sFilename: pool/%s.deb\nSize: %d\nSHA256: %s\n\n", d.name, d.extra, d.name, len(data), sum(data))
	}
	m.files["/d/dists/stable/main/binary-amd64/Packages.gz"] = gz(index.Bytes())
	m.sign(t, time.Now(), nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.hits.Add(1)
		if data, ok := m.files[r.URL.Path]; ok {
			w.Write(data)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(srv.Close)
	m.url = srv.URL + "/d"
	return m
}

// sign writes InRelease, its text changed by edit before that.
func (m *mirror) sign(t *testing.T, date time.Time, edit func(string) string) {
	t.Helper()
	p := m.files["/d/dists/stable/main/binary-amd64/Packages.gz"]
	text := fmt.Sprintf("Origin: Test\nSuite: stable\nCodename: rock\nDate: %s\nValid-Until: %s\nArchitectures: amd64\nComponents: main\nSHA256:\n %s %d main/binary-amd64/Packages.gz\n",
		date.UTC().Format(time.RFC1123), date.Add(time.Hour).UTC().Format(time.RFC1123), sum(p), len(p))
	if edit != nil {
		text = edit(text)
	}
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, m.key.PrivateKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, text)
	w.Close()
	m.files["/d/dists/stable/InRelease"] = out.Bytes()
}

// keyring writes the public key to a file.
func (m *mirror) keyring(t *testing.T, armoured bool) string {
	t.Helper()
	var out bytes.Buffer
	w := io.WriteCloser(nopCloser{&out})
	if armoured {
		w, _ = armor.Encode(&out, openpgp.PublicKeyType, nil)
	}
	if err := m.key.Serialize(w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	path := filepath.Join(t.TempDir(), "test.gpg")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func (m *mirror) options(t *testing.T) Options {
	return Options{Mirror: m.url, Suite: "stable", Keyring: m.keyring(t, false), Arch: "amd64", Cache: t.TempDir(), etc: t.TempDir()}
}

func TestArchive(t *testing.T) {
	m := newMirror(t)
	opt := m.options(t)
	opt.Keyring = m.keyring(t, true)
	var last api.TemplateProgress
	opt.Progress = func(p api.TemplateProgress) { last = p }
	a, err := Open(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	set, err := a.Resolve([]string{"a1=1"})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		m.hits.Store(0)
		files, err := a.Fetch(context.Background(), set)
		if err != nil {
			t.Fatal(err)
		}
		var in []io.ReaderAt
		for _, f := range files {
			defer f.Close()
			in = append(in, f)
		}
		if err := WriteTar(set, in, io.Discard); err != nil {
			t.Fatal(err)
		}
		if want := int64(2 - 2*round); m.hits.Load() != want {
			t.Errorf("round %d: %d requests, want %d: the cache has them", round, m.hits.Load(), want)
		}
	}
	if size, _ := set.Size(); last.Phase != "download" || last.Done != size || last.Total != size {
		t.Errorf("the last word was %+v", last)
	}
	if set.Sources != "deb "+m.url+" stable main\n" || len(set.Keys) != 1 {
		t.Errorf("for apt inside: %q, %d keys", set.Sources, len(set.Keys))
	}
	// A file of the cache that is not what it was is fetched again.
	m.hits.Store(0)
	os.WriteFile(filepath.Join(opt.Cache, set.Packages[0].SHA256), []byte("torn"), 0o600)
	if _, err := a.Fetch(context.Background(), set); err != nil || m.hits.Load() != 1 {
		t.Errorf("after a torn file: %v, %d requests", err, m.hits.Load())
	}
	if err := Prune(opt.Cache, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(opt.Cache); len(left) != 0 {
		t.Errorf("%d files left after all were pruned", len(left))
	}
}

// TestRefused: whatever breaks the chain of trust is an error with a hint.
func TestRefused(t *testing.T) {
	const inRelease, packages = "/d/dists/stable/InRelease", "/d/dists/stable/main/binary-amd64/Packages.gz"
	for name, tt := range map[string]struct {
		change func(t *testing.T, m *mirror, o *Options)
		want   string
	}{
		"another key":     {func(t *testing.T, m *mirror, o *Options) { o.Keyring = newMirror(t).keyring(t, false) }, "signature"},
		"no keyring":      {func(t *testing.T, m *mirror, o *Options) { o.Keyring = "" }, "needs a suite, and the keyring"},
		"no suite":        {func(t *testing.T, m *mirror, o *Options) { o.Suite = "" }, "needs a suite"},
		"odd suite":       {func(t *testing.T, m *mirror, o *Options) { o.Suite = "../stable" }, "not the name of a suite"},
		"odd mirror":      {func(t *testing.T, m *mirror, o *Options) { o.Mirror = "file:///srv" }, "not an http or https URL"},
		"no host sources": {func(t *testing.T, m *mirror, o *Options) { o.Mirror, o.Keyring = "", "" }, "no apt sources"},
		"text changed": {func(t *testing.T, m *mirror, o *Options) {
			m.files[inRelease] = bytes.Replace(m.files[inRelease], []byte("Origin: Test"), []byte("Origin: Best"), 1)
		}, "signature"},
		"text before": {func(t *testing.T, m *mirror, o *Options) {
			m.files[inRelease] = append([]byte("Origin: x\n"), m.files[inRelease]...)
		}, "no signature"},
		"text after": {func(t *testing.T, m *mirror, o *Options) {
			m.files[inRelease] = append(m.files[inRelease], "Origin: x\n"...)
		}, "no signature"},
		"unsigned": {func(t *testing.T, m *mirror, o *Options) {
			m.files[inRelease] = []byte("Origin: Test\nSuite: stable\n")
		}, "no signature"},
		"Release without a signature": {func(t *testing.T, m *mirror, o *Options) {
			delete(m.files, inRelease)
			m.files["/d/dists/stable/Release"] = []byte("Origin: Test\n")
		}, "no signature"},
		"nothing there": {func(t *testing.T, m *mirror, o *Options) { delete(m.files, inRelease) }, "no signed suite"},
		"too old":       {func(t *testing.T, m *mirror, o *Options) { m.sign(t, time.Now().Add(-2*time.Hour), nil) }, "was valid until"},
		"too new":       {func(t *testing.T, m *mirror, o *Options) { m.sign(t, time.Now().Add(48*time.Hour), nil) }, ""},
		"another suite": {func(t *testing.T, m *mirror, o *Options) {
			m.sign(t, time.Now(), func(s string) string { return strings.Replace(s, "stable", "older", 1) })
		}, "says it is the suite"},
		"MD5 alone": {func(t *testing.T, m *mirror, o *Options) {
			m.sign(t, time.Now(), func(s string) string { return strings.Replace(s, "SHA256:", "MD5Sum:", 1) })
		}, "no component main"},
		"another index":   {func(t *testing.T, m *mirror, o *Options) { m.files[packages] = gz([]byte("Package: a1\n")) }, "ends early"},
		"index changed":   {func(t *testing.T, m *mirror, o *Options) { m.files[packages][20] ^= 1 }, "not the file"},
		"package changed": {func(t *testing.T, m *mirror, o *Options) { m.files["/d/pool/a1.deb"][80] ^= 1 }, "not the file"},
		"package longer": {func(t *testing.T, m *mirror, o *Options) {
			m.files["/d/pool/a1.deb"] = append(m.files["/d/pool/a1.deb"], 0)
		}, "not the file"},
		"package missing": {func(t *testing.T, m *mirror, o *Options) { delete(m.files, "/d/pool/a1.deb") }, "the mirror has no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t)
			opt := m.options(t)
			tt.change(t, m, &opt)
			a, err := Open(context.Background(), opt)
			if err == nil {
				var set Set
				if set, err = a.Resolve([]string{"a1"}); err == nil {
					_, err = a.Fetch(context.Background(), set)
				}
			}
			var typed *api.Error
			if err == nil || !errors.As(err, &typed) || typed.Hint == "" || tt.want != "ends early" && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q with a hint", err, tt.want)
			}
			left, _ := os.ReadDir(opt.Cache)
			for _, e := range left {
				if strings.HasPrefix(e.Name(), "part-") {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
}

func TestDetached(t *testing.T) {
	m := newMirror(t)
	const dist = "/d/dists/stable/"
	text, err := openInRelease(openpgp.EntityList{m.key}, m.files[dist+"InRelease"], time.Now())
	if err != nil {
		t.Fatal(err)
	}
	delete(m.files, dist+"InRelease")
	var sig bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&sig, m.key, bytes.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	m.files[dist+"Release"], m.files[dist+"Release.gpg"] = text, sig.Bytes()
	if _, err := Open(context.Background(), m.options(t)); err != nil {
		t.Error(err)
	}
	m.files[dist+"Release"] = append(text, '\n')
	if _, err := Open(context.Background(), m.options(t)); err == nil {
		t.Error("a changed Release passed")
	}
}

func TestHostSources(t *testing.T) {
	etc := t.TempDir()
	write := func(name, text string) {
		os.MkdirAll(filepath.Dir(filepath.Join(etc, name)), 0o755)
		os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644)
	}
	write("os-release", "ID=debian\nVERSION_CODENAME=\"rock\"\n")
	write("apt/sources.list", "# deb http://no.test x main\ndeb [signed-by=/k.gpg arch=amd64,arm64] http://one.test/d/ rock main contrib # c\ndeb-src http://one.test/d rock main\ndeb cdrom:[x]/ rock main\ndeb http://third.test/d other main\n")
	write("apt/sources.list.d/b.sources", "Types: deb deb-src\nURIs: https://two.test/s\nSuites: rock-updates rock-security rock-backports\nComponents: main\nSigned-By:\n "+armorHead+"\n .\n abc\n -----END PGP PUBLIC KEY BLOCK-----\n\nEnabled: no\nTypes: deb\nURIs: http://off.test\nSuites: rock\nComponents: main\n")
	for suite, want := range map[string]string{
		"":     "http://one.test/d rock, https://two.test/s rock-updates, https://two.test/s rock-security",
		"sand": "http://one.test/d sand, https://two.test/s sand-updates, https://two.test/s sand-security",
	} {
		list, err := hostSources(etc, suite)
		var got []string
		for _, s := range list {
			got = append(got, s.uri+" "+s.suite)
		}
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%q: %q, %v; want %q", suite, got, err, want)
			continue
		}
		if list[0].signedBy[0] != "/k.gpg" || len(list[0].archs) != 2 || !strings.Contains(list[1].signedBy[0], armorHead+"\n\nabc\n") {
			t.Errorf("%q: signed by %q", suite, list[0].signedBy)
		}
	}
}

func TestAptConf(t *testing.T) {
	c := aptConf{}
	c.parse("// c\nAcquire::http::Proxy \"http://a.test:1\"; # x\nAcquire { https { Proxy \"http://b.test:2\"; Proxy::direct.test \"DIRECT\"; }; /* { */ };\nDPkg::Post-Invoke {\"rm -f x; y\";};\n")
	for where, want := range map[string]string{"http://m.test/": "http://a.test:1", "https://m.test/": "http://b.test:2", "https://direct.test/": "<nil>"} {
		r, _ := http.NewRequest("GET", where, nil)
		if u, err := c.proxy(r); err != nil || fmt.Sprint(u) != want {
			t.Errorf("%s: %v, %v; want %s", where, u, err, want)
		}
	}
}

func FuzzRelease(f *testing.F) {
	f.Add([]byte("Origin: a\nSuite: s\nDate: Sat, 28 Nov 2026 14:09:31 UTC\nValid-Until: Sat,  5 Dec 2026 14:09:31 UTC\nSHA256:\n "+strings.Repeat("a", 64)+" 12 main/binary-amd64/Packages.xz\n"), []byte("Package: a\nVersion: 1\n\n"))
	f.Add([]byte("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nx: y\n-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"), []byte{})
	key, err := openpgp.NewEntity("a", "", "a@mirror.test", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data, index []byte) {
		keys := openpgp.EntityList{key}
		if r, err := parseRelease(data); err == nil {
			for _, e := range r.files {
				if !isSHA256(e.sha256) || e.size < 0 {
					t.Fatalf("%+v", e)
				}
			}
		}
		if _, err := openInRelease(keys, data, time.Now()); err == nil {
			t.Fatal("a signature out of nothing")
		}
		if _, err := openRelease(keys, data, index, time.Now()); err == nil {
			t.Fatal("a signature out of nothing")
		}
		x := newIndex("amd64")
		if x.read(bytes.NewReader(index), source{}, false) == nil {
			x.finish()
		}
	})
}
