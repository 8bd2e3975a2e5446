package image

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// checkPaths validates the paths of the options.
func checkPaths(opt Options) error {
	for _, p := range slices.Concat(opt.Include, opt.Exclude) {
		if !filepath.IsAbs(p) || filepath.Clean(p) != strings.TrimSuffix(p, "/") {
			return fail(api.CodeTemplateInvalid, fmt.Sprintf("template path %q is not a clean absolute path", p),
				"write it from the root and without . or .., like /opt/tool")
		}
	}
	for _, p := range opt.Include {
		for _, no := range []string{"/", "/proc", "/sys", "/dev"} {
			if p == no || no != "/" && below(p, no) {
				return fail(api.CodeTemplateInvalid, fmt.Sprintf("%s cannot be included in the host template", p),
					"name the directories that are needed")
			}
		}
	}
	return nil
}

// below says whether path is dir or something in it.
func below(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return strings.HasPrefix(path, dir) && (len(path) == len(dir) || path[len(dir)] == '/')
}

func belowAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return below(path, d) })
}

// tooLarge says which directories make an image that big.
func tooLarge(template string, size, limit int64, t *tree) error {
	var b strings.Builder
	var first string
	for i, d := range biggest(t, 8) {
		if i > 0 {
			b.WriteString(", ")
		} else {
			first = d.path
		}
		fmt.Fprintf(&b, "%s %s", d.path, human(d.size))
	}
	return fail(api.CodeTemplateTooLarge,
		fmt.Sprintf("template %s is %s, over its limit of %s; most of it is in %s", template, human(size), human(limit), b.String()),
		fmt.Sprintf("leave something out, --template-exclude %s, or raise the limit, --template-max %s", first, strings.ReplaceAll(human(roundUp(size, 256<<20)), " MiB", "m")))
}

type dirUse struct {
	path string
	size int64
}

// biggest names the directories that hold the most, none of them inside
// another. A directory is split into its parts while one of those explains
// most of it.
func biggest(t *tree, count int) []dirUse {
	sizes := map[*node]int64{}
	seen := map[*node]bool{}
	var sum func(n *node) int64
	sum = func(n *node) int64 {
		if n.isFile() {
			if seen[n] {
				return 0
			}
			seen[n] = true
			return roundUp(n.size, blockSize) + inodeSize
		}
		total := int64(inodeSize)
		for name, kid := range n.kids {
			total += sum(kid) + int64(len(name))
		}
		sizes[n] = total
		return total
	}
	whole := sum(t.root)
	var out []dirUse
	var list func(at string, n *node)
	list = func(at string, n *node) {
		size := sizes[n]
		split := strings.Count(at, "/") < 3 && size > whole/16
		if split {
			rest := size
			for name, kid := range n.kids {
				if kid.isDir() && sizes[kid] > whole/64 {
					rest -= sizes[kid]
					list(path.Join(at, name), kid)
				}
			}
			size = rest
		}
		out = append(out, dirUse{at, size})
	}
	list("/", t.root)
	slices.SortFunc(out, func(a, b dirUse) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.path, b.path))
	})
	return out[:min(count, len(out))]
}

func human(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }
