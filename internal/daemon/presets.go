package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/preset"
)

// A presetsFile is what an operator says that presets stand for.
type presetsFile struct {
	Presets map[string]filePreset `yaml:"presets"`
}

type filePreset struct {
	Hosts list              `yaml:"hosts"`
	Files map[string]string `yaml:"files"`
	Env   map[string]string `yaml:"env"`
}

// maxPreset bounds the files and the environment of one preset, in bytes: all of
// a run's presets go to its worker in one message.
const maxPreset = 24 << 10

// ReadPresets reads a presets file.
func ReadPresets(name string) (map[string]policy.Preset, error) {
	fail := func(err error) error {
		return &api.Error{Code: api.CodeBadRequest, Message: "presets " + name + ": " + err.Error(), Hint: "berm help policy"}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: "presets: " + err.Error(), Hint: "berm help policy"}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(b) > maxConfig {
		err = fmt.Errorf("longer than %d bytes", maxConfig)
	}
	if err != nil {
		return nil, fail(err)
	}
	var doc presetsFile
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fail(errors.New(plain(err)))
	}
	out := map[string]policy.Preset{}
	for _, name := range slices.Sorted(maps.Keys(doc.Presets)) {
		p := doc.Presets[name]
		if err := p.check(); err != nil {
			return nil, fail(fmt.Errorf("%s: %w", name, err))
		}
		out[name] = policy.Preset{Hosts: p.Hosts, Files: p.Files, Env: p.Env}
	}
	return out, nil
}

func (p filePreset) check() error {
	if len(p.Hosts) == 0 {
		return errors.New("has no hosts, as in example.com:443")
	}
	total := 0
	for name, text := range p.Files {
		if !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) {
			return fmt.Errorf("file %.80q: is not a clean absolute path", name)
		}
		total += len(name) + len(text)
	}
	for k, v := range p.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("env %.80q: cannot be a variable", k)
		}
		total += len(k) + len(v)
	}
	if total > maxPreset {
		return fmt.Errorf("files and env have %d bytes, and may have %d", total, maxPreset)
	}
	return nil
}

// findPresets is what presets stand for in a run without a daemon: what a file
// says, or what this host's own clients and their registries say.
func findPresets(ctx context.Context, names []string, file string) (map[string]policy.Preset, error) {
	found := map[string]policy.Preset{}
	if file != "" {
		var err error
		if found, err = ReadPresets(file); err != nil {
			return nil, err
		}
	}
	asked := map[string]preset.Settings{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first error
	for _, name := range names {
		if _, ok := found[name]; ok {
			continue
		}
		wg.Go(func() {
			s, err := preset.Ask(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			}
			asked[name] = s
		})
	}
	wg.Wait()
	if first != nil {
		return nil, first
	}
	if len(asked) > 0 {
		fetched, err := fetchPresets(ctx, asked)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, fetched)
	}
	for name := range found { // of a file, only what is asked for
		if !slices.Contains(names, name) {
			delete(found, name)
		}
	}
	return found, nil
}

// somePresets finds what can be found: what this host has no client of is left
// out.
func somePresets(ctx context.Context, file string) map[string]policy.Preset {
	found := map[string]policy.Preset{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, name := range preset.Names() {
		wg.Go(func() {
			if one, err := findPresets(ctx, []string{name}, file); err == nil {
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(found, one)
			}
		})
	}
	wg.Wait()
	return found
}

// knownPresets is what the engine asks in a worker.
func knownPresets(known map[string]policy.Preset) func(string) (policy.Preset, error) {
	return func(name string) (policy.Preset, error) {
		if p, ok := known[name]; ok {
			return p, nil
		}
		return policy.Preset{}, errors.New("is not known here")
	}
}
