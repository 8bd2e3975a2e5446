package deb

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// A keyring is the keys that may sign a suite, and the same as files for apt
// inside.
type keyring struct {
	keys  openpgp.EntityList
	files map[string][]byte
}

// loadKeys reads what Signed-By names; nothing named is the keys that apt of the
// host trusts for everything. A file that is missing is an error only if named.
func loadKeys(etc string, signedBy []string) (keyring, error) {
	ring := keyring{files: map[string][]byte{}}
	var fingerprints []string
	paths := []string{}
	for _, by := range signedBy {
		switch {
		case strings.Contains(by, armorHead):
			if err := ring.add("signed-by.asc", []byte(by)); err != nil {
				return keyring{}, err
			}
		case strings.Contains(by, "/"):
			paths = append(paths, by)
		default:
			fingerprints = append(fingerprints, strings.ToUpper(strings.TrimSuffix(by, "!")))
		}
	}
	if len(paths) == 0 && len(ring.keys) == 0 {
		for _, pattern := range []string{"apt/trusted.gpg", "apt/trusted.gpg.d/*.gpg", "apt/trusted.gpg.d/*.asc"} {
			more, _ := filepath.Glob(filepath.Join(etc, pattern)) // the pattern is fine
			paths = append(paths, more...)
		}
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return keyring{}, invalid("name a keyring that signs this suite: --keyring FILE", "read keyring %s: %v", path, errors.Unwrap(err))
		}
		if err := ring.add(filepath.Base(path), data); err != nil && len(signedBy) > 0 {
			return keyring{}, err
		}
	}
	if len(fingerprints) > 0 {
		ring.keys = slices.DeleteFunc(ring.keys, func(e *openpgp.Entity) bool {
			return !slices.ContainsFunc(fingerprints, func(f string) bool { return hasFingerprint(e, f) })
		})
	}
	if len(ring.keys) == 0 {
		return keyring{}, invalid("install the keyring of the distribution, or name one: --keyring FILE", "no keys to check a signature with")
	}
	return ring, nil
}

func hasFingerprint(e *openpgp.Entity, want string) bool {
	match := func(k *packet.PublicKey) bool { return strings.ToUpper(hexOf(k.Fingerprint)) == want }
	return match(e.PrimaryKey) || slices.ContainsFunc(e.Subkeys, func(s openpgp.Subkey) bool { return match(s.PublicKey) })
}

func (k *keyring) add(name string, data []byte) error {
	read := openpgp.ReadKeyRing
	if bytes.Contains(data, []byte(armorHead)) {
		read = readArmored
	}
	list, err := read(bytes.NewReader(data))
	if err != nil && len(list) == 0 {
		return invalid("export it with gpg --export", "keyring %s: %v", name, err)
	}
	k.keys = append(k.keys, list...)
	k.files[name] = data
	return nil
}

// readArmored reads all blocks of a file; the library reads the first.
func readArmored(r io.Reader) (openpgp.EntityList, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxRelease))
	if err != nil {
		return nil, err
	}
	var all openpgp.EntityList
	for {
		at := bytes.Index(data, []byte(armorHead))
		if at < 0 {
			return all, nil
		}
		block, err := armor.Decode(bytes.NewReader(data[at:]))
		if err != nil {
			return all, err
		}
		list, err := openpgp.ReadKeyRing(block.Body)
		if err != nil && len(list) == 0 {
			return all, err
		}
		all = append(all, list...)
		data = data[at+len(armorHead):]
	}
}

var errUnsigned = errors.New("no signature by a key of the keyring")

// openInRelease checks a clear-signed file and returns the text that is signed,
// and nothing else of it.
func openInRelease(keys openpgp.EntityList, data []byte, now time.Time) ([]byte, error) {
	block, rest := clearsign.Decode(data)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 || !bytes.HasPrefix(data, []byte("-----BEGIN PGP SIGNED MESSAGE-----")) {
		return nil, errUnsigned
	}
	sigs, err := io.ReadAll(io.LimitReader(block.ArmoredSignature.Body, maxRelease))
	if err != nil {
		return nil, errUnsigned
	}
	return block.Plaintext, checkSignatures(keys, block.Bytes, sigs, now)
}

// openRelease checks a file against a signature of its own, armoured or not.
func openRelease(keys openpgp.EntityList, data, sig []byte, now time.Time) ([]byte, error) {
	if block, err := armor.Decode(bytes.NewReader(sig)); err == nil {
		if sig, err = io.ReadAll(io.LimitReader(block.Body, maxRelease)); err != nil {
			return nil, errUnsigned
		}
	}
	return data, checkSignatures(keys, data, sig, now)
}

// checkSignatures wants one good signature. Archives sign with an old and a new
// key, and a keyring has often only one of them.
func checkSignatures(keys openpgp.EntityList, message, sigs []byte, now time.Time) error {
	config := &packet.Config{Time: func() time.Time { return now }}
	last := errUnsigned
	packets := packet.NewOpaqueReader(bytes.NewReader(sigs))
	for range 16 {
		p, err := packets.Next()
		if err != nil {
			break
		}
		var one bytes.Buffer
		if p.Tag != 2 || p.Serialize(&one) != nil {
			continue
		}
		_, err = openpgp.CheckDetachedSignature(keys, bytes.NewReader(message), &one, config)
		if err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "unknown entity") {
			last = err
		}
	}
	return last
}

// A release is a suite's description, signed.
type release struct {
	origin, suite, codename string
	components, archs       []string
	files                   map[string]entry // by path below the suite
	byHash                  bool
	allInArch               bool // indexes of an architecture hold Architecture: all too
	optional                bool // NotAutomatic: only what is asked for by version
	date                    time.Time
	until                   time.Time // zero: for ever
}

// An entry is a file that a release names.
type entry struct {
	sha256 string
	size   int64
}

// parseRelease reads the text that was signed.
func parseRelease(data []byte) (release, error) {
	one, rest := cutParagraph(data)
	if len(bytes.TrimSpace(rest)) > 0 {
		return release{}, errControl
	}
	p, err := parseParagraph(one)
	if err != nil {
		return release{}, err
	}
	r := release{
		origin: p.get("Origin"), suite: p.get("Suite"), codename: p.get("Codename"),
		components: strings.Fields(p.get("Components")), archs: strings.Fields(p.get("Architectures")),
		files: map[string]entry{}, byHash: p.get("Acquire-By-Hash") == "yes",
		optional: p.get("NotAutomatic") == "yes",
	}
	r.allInArch = !slices.Contains(r.archs, "all") || p.get("No-Support-for-Architecture-all") == "Packages"
	if r.date, err = parseDate(p.get("Date")); err != nil {
		return release{}, err
	}
	if v := p.get("Valid-Until"); v != "" {
		if r.until, err = parseDate(v); err != nil {
			return release{}, err
		}
	}
	for line := range strings.SplitSeq(p.get("SHA256"), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 || !isSHA256(f[0]) {
			return release{}, errControl
		}
		size, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || size < 0 {
			return release{}, errControl
		}
		r.files[f[2]] = entry{f[0], size}
	}
	return r, nil
}

func parseDate(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC1123, time.RFC1123Z, "Mon, _2 Jan 2006 15:04:05 MST", "Mon, _2 Jan 2006 15:04:05 -0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errControl
}

func isSHA256(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if !digit(s[i]) && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// check compares a release with what was asked for and with the clock.
func (r release) check(s source, now time.Time) error {
	name := strings.TrimSuffix(s.suite, "/updates")
	if r.suite != name && r.codename != name && r.codename != s.suite && r.suite != s.suite {
		return refused("%s says it is the suite %q (%q), not %s", s.uri, short(r.suite), short(r.codename), s.suite)
	}
	if !r.until.IsZero() && now.After(r.until) {
		return invalid("the mirror is behind or its data are replayed; use another one, or set this host's clock",
			"suite %s of %s was valid until %s", s.suite, s.uri, r.until.UTC().Format(time.RFC3339))
	}
	if r.date.After(now.Add(24 * time.Hour)) {
		return invalid("set this host's clock", "suite %s of %s was made on %s, which is in the future", s.suite, s.uri, r.date.UTC().Format(time.RFC3339))
	}
	return nil
}
