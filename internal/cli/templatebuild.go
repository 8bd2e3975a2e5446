package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build/dockerfile"
)

const pullAbout = `
IMAGE is what docker pull takes: NAME[:TAG], HOST/NAME[:TAG], or NAME@sha256:...
The template has that name if --name gives it no other. Its layers are checked
against their digests, and those that another template has are not fetched again.
Credentials come from docker's or podman's files and helpers of whoever starts the
command, or the daemon, and go nowhere but to the registry.

Commands run as the image says. Root of an image is nobody here, and such an image
runs as agent, unless --user root says that its commands may be root, inside.

  berm template pull python:3.12-slim
  berm template pull registry.example.org/team/app:1.2 --name app --user root
`

func templatePullVerb() verb {
	var req api.BuildRequest
	var asJSON bool
	fs := append(flags{
		{name: "name", value: "NAME", help: "what the template is called (default: IMAGE)", set: text(&req.Name)},
		{name: "platform", value: "OS/ARCH", help: "of an image for several (default: this host's)", set: text(&req.Platform)},
		{name: "plain-http", help: "speak to the registry without TLS", set: toggle(&req.PlainHTTP)},
		{name: "replace", help: "a template of that name may exist", set: toggle(&req.Replace)},
	}, append(configFlags(&req.Config), flag{name: "json", help: "print the template as one JSON object", set: toggle(&asJSON)})...)
	return verb{
		name: "pull", summary: "make a template from an image of a registry", usage: "[FLAG...] IMAGE", flags: func() flags { return fs }, about: pullAbout,
		run: shelf("pull", fs, 1, 1, false, func(ctx context.Context, a *asker, args []string) error {
			req.ImageRef = args[0]
			if req.Name == "" {
				req.Name = args[0]
			}
			if err := checkTemplateName(req.Name); err != nil {
				return err
			}
			x, err := a.pulled(ctx, req)
			if err != nil {
				return err
			}
			return a.madeIt(x, asJSON)
		}),
	}
}

// pulled pulls an image.
func (a *asker) pulled(ctx context.Context, req api.BuildRequest) (api.Template, error) {
	b, err := a.PullTemplate(ctx, req)
	if err != nil {
		return api.Template{}, err
	}
	return a.built(ctx, b, false)
}

const buildAbout = `
A template is built from one of: a recipe that berm brings along, if nothing but
its name is said; --deb, packages of a Debian or Ubuntu release; --file, a
Dockerfile; --from, another template. --pip and --npm install on top of it. What
they run is run in sandboxes, never on this host, and reaches what it needs to
fetch packages and what --allow names, nothing else.

Of a Dockerfile there are FROM, RUN, COPY, ADD of files, ENV, ARG, WORKDIR, USER,
ENTRYPOINT, CMD, LABEL, EXPOSE and SHELL, and stages; FROM is a template or an image.
CONTEXT is what COPY takes from: by default the Dockerfile's own directory, without
what .dockerignore leaves out. Each step is kept and is not run again until it, or
what it copies, changes; --no-cache runs them all.

  berm template build code-interpreter
  berm template build data --deb python3,python3-pandas --pip humanize==4.9.0
  berm template build web --file Dockerfile --build-arg VERSION=2 .
  berm template build tools --from code-interpreter --npm typescript
`

// A buildAsk is what the flags of template build say.
type buildAsk struct {
	req     api.BuildRequest
	file    string
	keyring string
	quiet   bool
	json    bool
}

func (b *buildAsk) flags() flags {
	b.req.BuildArgs = map[string]string{}
	return slices.Concat(flags{
		{name: "deb", value: "NAME,...", help: "packages of a Debian or Ubuntu release, with what they need (repeat)", set: list(&b.req.Debs)},
		{name: "suite", value: "NAME", help: "the release, as bookworm or noble (default: this host's)", set: text(&b.req.Suite)},
		{name: "mirror", value: "URL", help: "where its packages are (default: as this host's apt has it)", set: text(&b.req.Mirror)},
		{name: "keyring", value: "FILE", help: "the keys that sign them (default: this host's)", set: text(&b.keyring)},
		{name: "pip", value: "NAME,...", help: "Python packages (repeat)", set: list(&b.req.Pips)},
		{name: "npm", value: "NAME,...", help: "Node packages (repeat)", set: list(&b.req.Npms)},
		{name: "from", value: "TEMPLATE", help: "a template to go on from", set: text(&b.req.From)},
		{name: "file", short: "f", value: "DOCKERFILE", help: "the steps; - is standard input", set: text(&b.file)},
		{name: "build-arg", value: "K=V", help: "an ARG of the Dockerfile (repeat)", set: pairs(b.req.BuildArgs, "as in --build-arg VERSION=2")},
		{name: "allow", value: "TARGET", help: "what steps may reach beside the package registries; see berm help policy (repeat)", set: more(&b.req.Egress)},
		{name: "no-network", help: "steps reach nothing at all", set: toggle(&b.req.NoNetwork)},
		{name: "no-cache", help: "run every step again", set: toggle(&b.req.NoCache)},
		{name: "memory", value: "SIZE", help: "memory for each step, as 2g", set: withUnit("memory", size(&b.req.Limits.MemoryBytes, true))},
		{name: "cpus", value: "N", help: "cores' worth of time for each step", set: number(&b.req.Limits.CPUs)},
		{name: "pids", value: "N", help: "processes and threads of each step", set: count(&b.req.Limits.Pids)},
		{name: "disk", value: "SIZE", help: "what one step may write", set: withUnit("disk", size(&b.req.Limits.DiskBytes, false))},
		{name: "timeout", value: "TIME", help: "wall clock for each step, as 10m", set: duration(&b.req.Limits.TimeoutSeconds)},
	}, configFlags(&b.req.Config), flags{
		{name: "platform", value: "OS/ARCH", help: "of images that FROM names (default: this host's)", set: text(&b.req.Platform)},
		{name: "replace", help: "a template of that name may exist", set: toggle(&b.req.Replace)},
		{name: "quiet", short: "q", help: "do not show what the steps write", set: toggle(&b.quiet)},
		{name: "json", help: "print the template as one JSON object", set: toggle(&b.json)},
	})
}

// list collects words between commas, of a flag that may be given again.
func list(p *[]string) func(string) error {
	return func(s string) error {
		words := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
		if len(words) == 0 {
			return errEmpty
		}
		*p = append(*p, words...)
		return nil
	}
}

func templateBuildVerb() verb {
	b := new(buildAsk)
	fs := b.flags()
	return verb{
		name: "build", summary: "make a template from packages, a Dockerfile or a recipe", usage: "[FLAG...] NAME [CONTEXT]",
		flags: func() flags { return fs }, about: buildAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			return shelf("build", fs, 1, 2, true, func(ctx context.Context, a *asker, args []string) error {
				files, err := b.prepare(a.Env, args)
				if err != nil {
					return err
				}
				var in io.Reader
				if files != nil {
					defer files.Close()
					in = files
				}
				started, err := a.BuildTemplate(ctx, b.req, in)
				if files != nil && files.err != nil {
					err = files.err
				}
				if err != nil {
					return err
				}
				x, err := a.built(ctx, started, !b.quiet)
				if err != nil {
					return err
				}
				return a.madeIt(x, b.json)
			})(ctx, env, args)
		},
	}
}

// prepare makes the request whole; files is what COPY takes from, or nil.
func (b *buildAsk) prepare(env *Env, args []string) (files *archived, err error) {
	r := &b.req
	r.Name = args[0]
	if err := checkTemplateName(r.Name); err != nil {
		return nil, err
	}
	var from []string
	for _, s := range []struct {
		flag string
		have bool
	}{{"--deb", len(r.Debs) > 0}, {"--file", b.file != ""}, {"--from", r.From != ""}} {
		if s.have {
			from = append(from, s.flag)
		}
	}
	switch {
	case len(from) > 1:
		return nil, &fault{from[0] + " and " + from[1], "are two beginnings of one template", "berm help template build"}
	case len(args) > 1 && b.file == "":
		return nil, &fault{shellLine(args[1:]), "is a context, which only a Dockerfile copies from", "berm template build " + shellLine([]string{args[0], "--file", filepath.Join(args[1], "Dockerfile"), args[1]})}
	case len(from) == 0 && len(r.Pips)+len(r.Npms) > 0:
		return nil, &fault{"template build", "--pip and --npm go on top of something", "berm template build " + shellLine(args[:1]) + " --from code-interpreter ..."}
	case len(r.BuildArgs) > 0 && b.file == "":
		return nil, &fault{"--build-arg", "is for a Dockerfile", "berm help template build"}
	case (r.Suite != "" || r.Mirror != "" || b.keyring != "") && len(r.Debs) == 0:
		return nil, &fault{"--suite, --mirror and --keyring", "are for --deb", "berm help template build"}
	case r.NoNetwork && len(r.Egress) > 0:
		return nil, &fault{"--no-network and --allow", "contradict each other", "berm help template build"}
	}
	if len(from) == 0 {
		r.Recipe = r.Name
	}
	if b.keyring != "" {
		if r.Keyring, err = readBounded(b.keyring, 512<<10); err != nil {
			return nil, err
		}
	}
	if b.file == "" {
		return nil, nil
	}
	return b.dockerfile(env, args[1:])
}

// dockerfile reads the Dockerfile and begins to read its context.
func (b *buildAsk) dockerfile(env *Env, args []string) (*archived, error) {
	const most = 512 << 10
	var text []byte
	var err error
	if b.file == "-" {
		if text, err = io.ReadAll(io.LimitReader(env.Stdin, most+1)); err == nil && len(text) > most {
			err = &fault{"standard input", "is more than 512k of Dockerfile", "berm help template build"}
		}
	} else {
		text, err = readBounded(b.file, most)
	}
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(text)) == "" {
		return nil, &fault{shellLine([]string{b.file}), "is empty", "berm help template build"}
	}
	b.req.Dockerfile = string(text)
	dir := filepath.Dir(b.file)
	if len(args) > 0 {
		dir = args[0]
	} else if b.file == "-" {
		return nil, nil
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, &fault{shellLine([]string{dir}), "is not a directory", "berm template build NAME --file DOCKERFILE DIR"}
	}
	if !copies(text) { // nothing would be taken from it
		return nil, nil
	}
	skip, err := ignored(b.file, dir)
	if err != nil {
		return nil, err
	}
	return treeOf(dir, skip, false), nil
}

// ignored is what a context leaves out: by DOCKERFILE.dockerignore, or else by
// its own .dockerignore, which goes along.
func ignored(file, dir string) (skip func(string) bool, err error) {
	for _, name := range []string{file + ".dockerignore", filepath.Join(dir, ".dockerignore")} {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, &fault{shellLine([]string{name}), unwrapPath(err).Error(), "berm help template build"}
		}
		defer f.Close()
		g, err := dockerfile.ReadIgnore(f)
		if err != nil {
			return nil, &fault{shellLine([]string{name}), err.Error(), "berm help template build"}
		}
		return func(p string) bool { return p != ".dockerignore" && g.Match(p) }, nil
	}
	return nil, nil
}

// copies says whether a Dockerfile may take files from its context.
func copies(text []byte) bool {
	up := strings.ToUpper(string(text))
	return strings.Contains(up, "COPY") || strings.Contains(up, "ADD")
}

// readBounded reads a small file.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &fault{shellLine([]string{name}), unwrapPath(err).Error(), "berm help template build"}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = errors.New("is larger than " + bytesText(most))
	}
	if err != nil {
		return nil, &fault{shellLine([]string{name}), unwrapPath(err).Error(), "berm help template build"}
	}
	return b, nil
}
