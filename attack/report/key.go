package report

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bermhq/berm/attack"
)

// Where a state directory keeps the key that signs its reports, and the public
// one for whoever shall trust it. It is not the key of the audit log: that one is
// the daemon's alone.
const (
	keyFile    = "attack.key"
	publicFile = "attack.pub"
)

// A Key signs reports.
type Key struct{ private ed25519.PrivateKey }

// Public is the key that others check with, in hex.
func (k Key) Public() string { return hex.EncodeToString(k.private.Public().(ed25519.PublicKey)) }

// OpenKey reads the key of a state directory, and makes it if there is none. It
// is believed only if nobody else can have written or read it.
func OpenKey(dir string) (Key, error) {
	path := filepath.Join(dir, keyFile)
	k, err := readKey(path)
	if errors.Is(err, os.ErrNotExist) {
		if err = makeKey(dir, path); err == nil || errors.Is(err, os.ErrExist) { // somebody else was faster
			k, err = readKey(path)
		}
	}
	if err != nil {
		return Key{}, fmt.Errorf("the key that signs reports: %w", err)
	}
	public := []byte(k.Public() + "\n")
	if b, err := os.ReadFile(filepath.Join(dir, publicFile)); err != nil || !bytes.Equal(b, public) {
		err := place(dir, publicFile, public, 0o644, os.Rename)
		if err != nil {
			return Key{}, fmt.Errorf("the public key of reports: %w", err)
		}
	}
	return k, nil
}

func readKey(path string) (Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Key{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return Key{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Geteuid() {
		return Key{}, fmt.Errorf("%s is not a file that only you can read (mode %v); remove it and a new one is made", path, fi.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return Key{}, err
	}
	whole, err := hex.DecodeString(strings.TrimSuffix(string(text), "\n"))
	if err != nil || len(whole) != ed25519.PrivateKeySize || !bytes.Equal(ed25519.NewKeyFromSeed(whole[:ed25519.SeedSize]), whole) {
		return Key{}, fmt.Errorf("%s is not a key; remove it and a new one is made", path)
	}
	return Key{ed25519.PrivateKey(whole)}, nil
}

// makeKey writes both halves, so that nobody takes it for a public key.

func makeKey(dir, path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	return place(dir, keyFile, append(hex.AppendEncode(nil, private), '\n'), 0o600, os.Link)
}

// place writes a file aside and gives it its name when it is whole. os.Link
// never takes the place of another, os.Rename does.
func place(dir, name string, text []byte, mode os.FileMode, put func(from, to string) error) error {
	f, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = put(f.Name(), filepath.Join(dir, name))
	}
	return err
}

const (
	algorithm = "ed25519"
	purpose   = "berm attack report 1\n" // before what is signed: no signature of one thing is one of another
)

// Sign signs a report.
func (k Key) Sign(rep *attack.Report) error {
	rep.Signature = nil
	doc, err := marshal(rep)
	if err != nil {
		return err
	}
	_, signed, err := parse(doc)
	if err != nil {
		return err
	}
	rep.Signature = &attack.Signature{Algorithm: algorithm, Key: k.Public(),
		Value: hex.EncodeToString(ed25519.Sign(k.private, append([]byte(purpose), signed...)))}
	return nil
}

// PublicKey reads a public key: hex, or a file that holds it.
func PublicKey(text string) (string, error) {
	if isKey(text) {
		return text, nil
	}
	f, err := os.Open(text)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return "", err
	}
	if s := strings.TrimSpace(string(b)); isKey(s) {
		return s, nil
	}
	return "", errors.New("it does not hold a public key: 64 hexadecimal digits in lower case")
}

func isKey(s string) bool {
	k, err := hex.DecodeString(s)
	return err == nil && len(k) == ed25519.PublicKeySize && hex.EncodeToString(k) == s
}
