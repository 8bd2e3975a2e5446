package cli

import (
	"path"
	"strings"

	"github.com/bermhq/berm/api"
)

// A place is a file or folder on one side or the other.
type place struct {
	sandbox string // "" for this host
	path    string // inside: absolute and clean
	dir     bool   // written as a folder: what is copied goes into it
}

// parsePlace reads SANDBOX:PATH, or the name of something here. As with scp a
// slash before the colon makes it a name; inside, a relative PATH is below
// /workspace.
func parsePlace(arg string) (place, error) {
	before, inside, has := strings.Cut(arg, ":")
	if !has || strings.Contains(before, "/") || before == "" {
		if arg == "" {
			return place{}, &fault{"a name", "is empty", ""}
		}
		return place{path: arg, dir: strings.HasSuffix(arg, "/")}, nil
	}
	if !idLike(before) {
		return place{}, &fault{shellLine([]string{arg}), "is not SANDBOX:PATH: no id starts like that", "./" + shellLine([]string{arg}) + " for a file of this host"}
	}
	p, err := insidePath(inside)
	if err != nil {
		return place{}, &fault{shellLine([]string{arg}), err.Error(), before + ":/PATH"}
	}
	return place{sandbox: before, path: p, dir: inside == "" || inside == "." || strings.HasSuffix(inside, "/")}, nil
}

// insidePath is a path inside, absolute and clean.
func insidePath(p string) (string, error) {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", errDots
		}
	}
	if strings.ContainsRune(p, 0) {
		return "", errZero
	}
	if !path.IsAbs(p) {
		p = path.Join(api.Workspace, p)
	}
	return path.Clean(p), nil
}

// parseInside reads SANDBOX:PATH; SANDBOX alone is its /workspace where bare is set.
func parseInside(arg string, bare bool) (place, error) {
	if bare && idLike(arg) {
		arg += ":"
	}
	p, err := parsePlace(arg)
	if err == nil && p.sandbox == "" {
		err = &fault{shellLine([]string{arg}), "is not SANDBOX:PATH", "berm ls"}
	}
	return p, err
}
