package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A program is one script with its head:
//
//	# title: SQLite
//	# area: Databases
//	# flags: --memory 1g           further flags of berm run
//	# net: pip                     presets that it needs; natively it has the host's network
//	# port: 8080                   it serves there until it is ended, and is asked from outside
//	# ignore: REGEXP               lines that are not compared
//	# why: REGEXP => REASON        lines that may differ, and why
type program struct {
	name, title, area string
	flags             []string
	net               []string
	port              string
	ignore            []*regexp.Regexp
	why               []reason
	script            string
}

// A reason explains lines that differ.
type reason struct {
	lines *regexp.Regexp
	text  string
}

func load(from fs.FS, only []string) ([]program, error) {
	names, err := fs.Glob(from, "programs/*.sh")
	if err != nil {
		return nil, err
	}
	var list []program
	for _, name := range names {
		short := strings.TrimSuffix(path.Base(name), ".sh")
		if only[0] != "" && !slices.Contains(only, short) {
			continue
		}
		b, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		p, err := parse(short, string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, p)
	}
	slices.SortStableFunc(list, func(a, b program) int { return strings.Compare(a.area, b.area) })
	return list, nil
}

func parse(name, text string) (program, error) {
	p := program{name: name, script: text}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !ok {
			break
		}
		key, value, _ := strings.Cut(rest, ": ")
		value = strings.TrimSpace(value)
		switch key {
		case "title":
			p.title = value
		case "area":
			p.area = value
		case "flags":
			p.flags = strings.Fields(value)
		case "net":
			p.net = strings.Fields(value)
		case "port":
			p.port = value
		case "ignore":
			re, err := regexp.Compile(value)
			if err != nil {
				return p, err
			}
			p.ignore = append(p.ignore, re)
		case "why":
			pattern, text, ok := strings.Cut(value, " => ")
			re, err := regexp.Compile(pattern)
			if err != nil || !ok {
				return p, fmt.Errorf("%q is not REGEXP => REASON (%v)", value, err)
			}
			p.why = append(p.why, reason{re, text})
		default:
			return p, fmt.Errorf("the head has no key %q", key)
		}
	}
	if p.title == "" || p.area == "" {
		return p, fmt.Errorf("title and area are missing in its head")
	}
	return p, nil
}
