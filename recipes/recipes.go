// Package recipes holds the recipes that Berm brings along: what a template is
// made of, as data. Each is recipe.yaml in a directory of its own:
//
//	about:   one line, for lists
//	debs:    packages of the distribution, with what they need
//	pips:    Python packages, as pip install takes them
//	npms:    Node packages, as npm install -g takes them
//	run:     lines of shell, run at last as the guest's root and without a network
//	env:     variables of every command, NAME: value
//	user:    root grants the guest's root; nothing else is meaningful
//	workdir: where commands begin
//	cmd:     what runs where no command is said, a list
package recipes

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"
)

//go:embed */recipe.yaml
var files embed.FS

// A Recipe is what one says.
type Recipe struct {
	About   string
	Debs    []string
	Pips    []string
	Npms    []string
	Run     []string
	Env     []string // NAME=value
	User    string
	Workdir string
	Cmd     []string
}

type written struct {
	About   string            `yaml:"about"`
	Debs    []string          `yaml:"debs"`
	Pips    []string          `yaml:"pips"`
	Npms    []string          `yaml:"npms"`
	Run     []string          `yaml:"run"`
	Env     map[string]string `yaml:"env"`
	User    string            `yaml:"user"`
	Workdir string            `yaml:"workdir"`
	Cmd     []string          `yaml:"cmd"`
}

// Names lists the recipes.
func Names() []string {
	all, _ := files.ReadDir(".")
	var out []string
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

// Read is the recipe of that name.
func Read(name string) (Recipe, error) {
	if !slices.Contains(Names(), name) {
		return Recipe{}, errors.New("there is none of that name")
	}
	text, err := files.ReadFile(path.Join(name, "recipe.yaml"))
	if err != nil {
		return Recipe{}, err
	}
	return parse(text)
}

func parse(text []byte) (Recipe, error) {
	var w written
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&w); err != nil {
		return Recipe{}, err
	}
	if len(w.Debs) == 0 {
		return Recipe{}, errors.New("it has no debs to begin with")
	}
	r := Recipe{About: w.About, Debs: w.Debs, Pips: w.Pips, Npms: w.Npms, Run: w.Run, User: w.User, Workdir: w.Workdir, Cmd: w.Cmd}
	for _, k := range slices.Sorted(maps.Keys(w.Env)) {
		r.Env = append(r.Env, fmt.Sprintf("%s=%s", k, w.Env[k]))
	}
	return r, nil
}
