package here

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// age makes everything old enough for stamps to prove something.
func age(t testing.TB, dir string) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode()&os.ModeSymlink == 0 {
			os.Chtimes(p, old, old)
		}
		return nil
	})
}

func TestSync(t *testing.T) {
	dir, state, srv := t.TempDir(), t.TempDir(), newFake()
	put(t, dir, map[string]string{"a.txt": "one", "sub/b": "two", "sub/deep/c": "three", "empty/": "", "link": "-> a.txt", "away": "-> /etc/passwd", ".git/HEAD": "ref: x"})
	os.Chmod(filepath.Join(dir, "sub/b"), 0o755)
	first := syncTree(t, dir, state, srv, Options{})
	sameTrees(t, srv.trees[first.ID], onDisk(t, dir))
	if !first.Full || srv.puts != 1 {
		t.Errorf("first: full %v, %d uploads", first.Full, srv.puts)
	}
	again := syncTree(t, dir, state, srv, Options{})
	if again.ID != first.ID || srv.puts != 1 {
		t.Errorf("an unchanged tree was sent again: %d uploads", srv.puts)
	}
	put(t, dir, map[string]string{"a.txt": "ONE"}) // same size, same moment
	racy := syncTree(t, dir, state, srv, Options{})
	sameTrees(t, srv.trees[racy.ID], onDisk(t, dir))
	delete(srv.trees, racy.ID) // the server forgot
	forgot := syncTree(t, dir, state, srv, Options{})
	sameTrees(t, srv.trees[forgot.ID], onDisk(t, dir))
	if !forgot.Full {
		t.Error("what the server forgot was not sent as a whole")
	}
}

// TestSyncChanges changes a larger tree again and again: what the server shows
// is always what lies there, and little of it is sent.
func TestSyncChanges(t *testing.T) {
	dir, state, srv := t.TempDir(), t.TempDir(), newFake()
	files := map[string]string{}
	for i := range 600 {
		files[fmt.Sprintf("d%d/e%d/f%d", i%7, i%3, i)] = strings.Repeat("x", 4000) + fmt.Sprint(i)
	}
	put(t, dir, files)
	age(t, dir)
	rng := rand.New(rand.NewPCG(1, 2))
	var full, parts int
	for round := range 40 {
		s := syncTree(t, dir, state, srv, Options{})
		sameTrees(t, srv.trees[s.ID], onDisk(t, dir))
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		if n := srv.layers[s.ID]; n > maxLayers+1 {
			t.Fatalf("round %d: %d layers", round, n)
		}
		if s.Full {
			full++
		} else {
			parts++
		}
		for range 1 + rng.IntN(4) {
			p := filepath.Join(dir, fmt.Sprintf("d%d/e%d", rng.IntN(7), rng.IntN(3)))
			f := filepath.Join(p, fmt.Sprintf("f%d", rng.IntN(30)))
			switch rng.IntN(8) {
			case 0:
				os.RemoveAll(p)
			case 1:
				os.RemoveAll(p)
				os.WriteFile(p, []byte("a file now"), 0o600)
			case 2:
				os.RemoveAll(f)
				os.MkdirAll(f+"/under", 0o755)
			case 3:
				os.Remove(f)
				os.Symlink(fmt.Sprint("t", rng.IntN(9)), f)
			case 4:
				os.Chmod(f, 0o600|os.FileMode(rng.IntN(8)))
			default:
				if fi, err := os.Lstat(p); err == nil && !fi.IsDir() {
					os.Remove(p)
				}
				os.MkdirAll(p, 0o755)
				os.WriteFile(f, fmt.Appendf(nil, "round %d %d", round, rng.IntN(5)), 0o644)
			}
		}
	}
	if parts < full {
		t.Errorf("%d times all was sent, %d times a part", full, parts)
	}
}

func TestSyncOnlyTouched(t *testing.T) {
	dir, state, srv := t.TempDir(), t.TempDir(), newFake()
	files := map[string]string{}
	for i := range 600 {
		files[fmt.Sprint("f", i)] = strings.Repeat("y", 4000)
	}
	put(t, dir, files)
	age(t, dir)
	syncTree(t, dir, state, srv, Options{})
	put(t, dir, map[string]string{"f7": "new"})
	s := syncTree(t, dir, state, srv, Options{})
	if s.Full || s.Uploaded != 3 {
		t.Errorf("sent %d bytes (all: %v) for a change of 3", s.Uploaded, s.Full)
	}
	os.Chmod(filepath.Join(dir, "f8"), 0o600) // and back: only the ctime is another
	os.Chmod(filepath.Join(dir, "f8"), 0o644)
	puts := srv.puts
	if syncTree(t, dir, state, srv, Options{}); srv.puts != puts {
		t.Error("a file that is what it was is sent again")
	}
}

func TestSkips(t *testing.T) {
	key := "-----BEGIN OPENSSH PRIVATE KEY-----\n" + strings.Repeat("b3BlbnNzaC1r", 6) + "\n-----END OPENSSH PRIVATE KEY-----\n"
	token := "ghp_" + strings.Repeat("a1B2c3", 6)
	secret := map[string]string{
		".env": "A=1", ".env.local": "A=1", ".env-prod": "A=1", ".env~": "A=1", "deploy/prod.env": "A=1", ".git/credentials": "https://a:b@git.test", "sub/.envrc": "export A", "id_ed25519": "x", ".netrc": "x", ".aws/credentials": "x", ".ssh/config": "x",
		".npmrc": "//registry.test/:_authToken=abc\n", ".docker/config.json": "{}", "store.p12": "x", "k.keystore": "x", "kubeconfig": "x",
		"deploy.txt": key, "conf/settings.py": "TOKEN = '" + token + "'\n", "gcp.json": `{"type": "service_account"}`, "tls/server.key": key, ".git-credentials": "x",
		"aws.ini": "key = AKIA" + "ABCDEFGHIJKLMNOP\n",
	}
	plain := map[string]string{
		".env.example": "A=", "example.env": "A=", ".environment": "A=", "id_rsa.pub": "ssh-rsa", "ca.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n", "sub/.npmrc": "registry=https://registry.test\n",
		"parse.go": "if strings.HasPrefix(s, \"-----BEGIN RSA PRIVATE KEY-----\") {\n", "README.md": "tokens start with ghp_ and have 40 characters",
		"node_modules/lib/test/key.js": key, ".npmrc.md": "x", "envs.py": "x",
	}
	dir, srv := t.TempDir(), newFake()
	put(t, dir, secret)
	put(t, dir, plain)
	s := syncTree(t, dir, t.TempDir(), srv, Options{})
	var skipped []string
	for _, k := range s.Skips {
		if k.Why != WhyCredential {
			t.Errorf("%s: %s", k.Path, k.Why)
		}
		skipped = append(skipped, k.Path)
	}
	in := srv.trees[s.ID]
	for p := range secret {
		top := slices.ContainsFunc(skipped, func(s string) bool { return s == p || strings.HasPrefix(p, s+"/") })
		if _, ok := in[p]; ok || !top {
			t.Errorf("%s went in: %v, was said to be left out: %v", p, ok, top)
		}
	}
	for p := range plain {
		if _, ok := in[p]; !ok {
			t.Errorf("%s did not go in", p)
		}
	}
	include, err := ParsePatterns([]string{".env", "deploy.txt", "/.aws"})
	if err != nil {
		t.Fatal(err)
	}
	s = syncTree(t, dir, t.TempDir(), srv, Options{Include: include})
	in = srv.trees[s.ID]
	for p, want := range map[string]bool{".env": true, "deploy.txt": true, ".aws/credentials": true, ".netrc": false, ".env.local": false} {
		if _, ok := in[p]; ok != want {
			t.Errorf("with --here-include: %s is in: %v", p, ok)
		}
	}
}

// TestSecretComesAndGoes: what becomes a credential leaves the next layer, and
// choices of one run are none of the next.
func TestSecretComesAndGoes(t *testing.T) {
	dir, state, srv := t.TempDir(), t.TempDir(), newFake()
	files := map[string]string{"conf": "nothing"}
	for i := range 600 {
		files[fmt.Sprint("f", i)] = strings.Repeat("z", 3000)
	}
	put(t, dir, files)
	has := func(opt Options) bool {
		t.Helper()
		age(t, dir)
		s := syncTree(t, dir, state, srv, opt)
		_, ok := srv.trees[s.ID]["conf"]
		return ok
	}
	include, _ := ParsePatterns([]string{"conf"})
	if !has(Options{}) {
		t.Error("a plain file did not go in")
	}
	put(t, dir, map[string]string{"conf": "t = glpat-" + strings.Repeat("Ab1", 8)})
	for range 2 {
		if has(Options{}) {
			t.Error("a token went in")
		}
	}
	for range 2 {
		if !has(Options{Include: include}) {
			t.Error("what was asked for did not go in")
		}
	}
	if has(Options{}) {
		t.Error("a token went in, because it did before")
	}
	exclude, _ := ParsePatterns([]string{"conf"})
	put(t, dir, map[string]string{"conf": "plain again"})
	if !has(Options{}) || has(Options{Exclude: exclude}) || !has(Options{}) {
		t.Error("an excluded file: a choice of one run held for another")
	}
}

func TestGitConfig(t *testing.T) {
	in := "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://me:secret@git.test/r.git\n\tpushurl = ssh://git@git.test/r.git\n" +
		"[http \"https://git.test/\"]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n[credential]\n\thelper = store\n"
	want := "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://git.test/r.git\n\tpushurl = ssh://git@git.test/r.git\n" +
		"[http \"https://git.test/\"]\n[credential]\n"
	if got := string(cleanGitConfig([]byte(in))); got != want {
		t.Errorf("got %q", got)
	}
	dir, srv := t.TempDir(), newFake()
	put(t, dir, map[string]string{".git/config": in, ".git/HEAD": "x", "config": in})
	s := syncTree(t, dir, t.TempDir(), srv, Options{})
	if got := srv.trees[s.ID][".git/config"]; got != "f 644 "+want {
		t.Errorf("inside is %q", got)
	}
	if got := srv.trees[s.ID]["config"]; got != "f 644 "+in {
		t.Errorf("a file that is not git's was changed: %q", got)
	}
}
