package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bermhq/berm/api"
)

// readPolicy reads one policy document for a sandbox: YAML, of which JSON is a
// part, strictly.
func readPolicy(name string, stdin io.Reader) (*api.Policy, error) {
	const page = "berm help policy"
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &fault{"--policy " + shellLine([]string{name}), unwrapPath(err).Error(), page}
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	if err == nil && len(b) > maxPolicy {
		err = errors.New("is longer than 1m")
	}
	var p *api.Policy
	if err == nil {
		p, err = parsePolicy(b)
	}
	if err != nil {
		return nil, &fault{"--policy " + shellLine([]string{name}), err.Error(), page}
	}
	return p, nil
}

func parsePolicy(b []byte) (*api.Policy, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(b))
	switch err := d.Decode(&doc); {
	case err == io.EOF:
		return nil, errors.New("holds no policy")
	case err != nil:
		return nil, yamlTrouble(err)
	}
	if err := d.Decode(new(yaml.Node)); err != io.EOF {
		return nil, errors.New("holds more than one document")
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: is not a table of keys, as egress: and limits: are", top.Line)
	}
	if err := checkKeys(top, "the document", jsonKeys(reflect.TypeFor[api.Policy]())); err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		k, v := top.Content[i], top.Content[i+1]
		var err error
		switch k.Value {
		case "limits":
			err = checkKeys(v, "limits", jsonKeys(reflect.TypeFor[api.Limits]()))
		case "egress":
			err = checkRules(v)
		case "templates":
			err = fmt.Errorf("line %d: templates is for the ceiling of a token; --template says which one to use", k.Line)
		}
		if err != nil {
			return nil, err
		}
	}
	var all map[string]any
	if err := top.Decode(&all); err != nil {
		return nil, yamlTrouble(err)
	}
	j, err := json.Marshal(all)
	if err != nil {
		return nil, errors.New("has a key that is not text")
	}
	p := &api.Policy{}
	if err := json.Unmarshal(j, p); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) {
			return nil, fmt.Errorf("line %d: %s is a %s, which it cannot be", lineOf(top, te.Field), te.Field, te.Value)
		}
		return nil, err
	}
	return p, nil
}

// checkRules sees to the shape of egress. The server judges what a rule says;
// that a key is misspelt is said here, where the line is known.
func checkRules(v *yaml.Node) error {
	if v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	if v.Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: egress is not a list of rules; [] is a link on which all is denied, and without the key there is no link", v.Line)
	}
	known := jsonKeys(reflect.TypeFor[api.EgressRule]())
	for _, r := range v.Content {
		if err := checkKeys(r, "a rule", known); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys refuses a key that is not known, with its line.
func checkKeys(n *yaml.Node, what string, known []string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s is not a table of keys; they are: %s", n.Line, what, strings.Join(known, ", "))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Tag == "!!merge" || slices.Contains(known, k.Value) {
			continue
		}
		err := fmt.Sprintf("line %d: %.40q is not a key of %s; they are: %s", k.Line, k.Value, what, strings.Join(known, ", "))
		if near := nearest(k.Value, known); near != "" {
			err = fmt.Sprintf("line %d: %.40q is not a key of %s; did you mean %s?", k.Line, k.Value, what, near)
		}
		return errors.New(err)
	}
	return nil
}

// jsonKeys lists the keys of a document that a struct is read from.
func jsonKeys(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	return keys
}

// lineOf is the line of a value, by the names of the keys that lead to it.
func lineOf(n *yaml.Node, path string) int {
	for _, name := range strings.Split(path, ".") {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				n = n.Content[i+1]
				break
			}
		}
	}
	return n.Line
}

// yamlTrouble is what the reader of YAML says, with the mistake that people make
// here most.
func yamlTrouble(err error) error {
	s := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	if strings.Contains(s, "alphabetic or numeric character") || strings.Contains(s, "unknown anchor") {
		s += ` (put a target that starts with a star in quotes: "*.example.test")`
	}
	return errors.New("is not YAML: " + s)
}
