package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/template"
)

// Builds makes templates as jobs; internal/build has it.
type Builds interface {
	// Start checks a request and starts it. What in holds is read before it
	// returns. The build goes on after ctx, whose caller it is made for.
	Start(ctx context.Context, req api.BuildRequest, in build.Input) (api.Build, error)
	List(ctx context.Context) []api.Build // the newest first, bounded
	Get(ctx context.Context, id string) (api.Build, error)
	// Cancel ends a build that runs; one that is over stays as it is.
	Cancel(ctx context.Context, id string) error
	// Lines gives each line from the first to f; with follow until the build is over.
	Lines(ctx context.Context, id string, follow bool, f func(line string) error) error
}

// hostTemplate is the one that is made of the host's own tools.
const hostTemplate = "host"

func (s *server) templateRoutes() map[string]handler {
	routes := map[string]handler{}
	if s.opt.Shelf != nil {
		routes["template.list"] = bare(s.listTemplates)
		routes["template.get"] = bare(s.getTemplate)
		routes["template.delete"] = s.ofNode(bare(s.deleteTemplate))
		routes["template.export"] = s.ofNode(s.exportTemplate)
		routes["template.import"] = s.ofNode(s.importTemplate)
		routes["workspace.create"] = s.createTree
		routes["workspace.get"] = bare(s.getTree)
	}
	if s.opt.Builds != nil {
		routes["template.pull"] = s.ofNode(bare(s.pullTemplate))
		routes["template.build"] = s.ofNode(bare(s.buildTemplate))
		routes["template.builds"] = s.ofNode(bare(s.listBuilds))
		routes["template.build.get"] = s.ofNode(bare(s.getBuild))
		routes["template.build.cancel"] = s.ofNode(bare(s.cancelBuild))
		routes["template.build.logs"] = s.ofNode(s.buildLogs)
	}
	return routes
}

// ofNode is a route about what all tenants share.
func (s *server) ofNode(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.node(r); err != nil {
			return err
		}
		return h(w, r)
	}
}

// templates is everything that sandboxes can be made from by name, aliases too.
func (s *server) templates(ctx context.Context) ([]api.Template, error) {
	all, err := s.opt.Shelf.List(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t api.Template) bool { return strings.HasPrefix(t.Name, api.TreePrefix) })
	named := func(name string) int {
		return slices.IndexFunc(all, func(t api.Template) bool { return t.Name == name })
	}
	if named(hostTemplate) < 0 {
		h, err := s.opt.Shelf.Get(ctx, hostTemplate)
		if err != nil && !isCode(err, api.CodeTemplateNotFound) {
			return nil, err
		}
		if err == nil {
			all = append([]api.Template{h}, all...)
		}
	}
	host := named(hostTemplate)
	if host < 0 {
		return all, nil
	}
	for _, alias := range sandbox.Aliases() {
		if named(alias) < 0 {
			t := all[host]
			t.Name, t.Resolved = alias, hostTemplate
			all = append(all, t)
		}
	}
	return all, nil
}

func isCode(err error, code string) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == code
}

func (s *server) listTemplates(w http.ResponseWriter, r *http.Request) error {
	list, err := s.templates(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []api.Template{}
	}
	reply(w, http.StatusOK, list)
	return nil
}

func (s *server) getTemplate(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	list, err := s.templates(r.Context())
	if err != nil {
		return err
	}
	for _, t := range list {
		if t.Name == name {
			reply(w, http.StatusOK, t)
			return nil
		}
	}
	return noTemplate(name)
}

func noTemplate(name string) error {
	return &api.Error{Code: api.CodeTemplateNotFound, Message: "template " + clip(name) + " does not exist", Hint: "berm template ls"}
}

func (s *server) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	switch {
	case name == hostTemplate:
		return &api.Error{Code: api.CodeTemplateInUse, Message: "the template host is made of this host's own tools and stays", Hint: "berm template ls"}
	case !api.ValidTemplate(name):
		return noTemplate(name)
	}
	if err := s.opt.Shelf.Remove(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// exportTemplate sends a template as one archive. What breaks off in the middle
// cuts the connection.
func (s *server) exportTemplate(w http.ResponseWriter, r *http.Request) error {
	format, err := query(r, "format")
	if err != nil {
		return err
	}
	if format == "" {
		format = "oci"
	}
	if !slices.Contains([]string{"oci", "docker", "tar"}, format) {
		return &api.Error{Code: api.CodeBadRequest, Message: "format: " + clip(format) + " is not known", Hint: "it is oci, docker or tar"}
	}
	name := r.PathValue("name")
	if strings.HasPrefix(name, api.TreePrefix) {
		return noTemplate(name)
	}
	if r.Method == http.MethodHead {
		if _, err := s.opt.Shelf.Get(r.Context(), name); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return nil
	}
	return s.opt.Shelf.Export(r.Context(), name, format, struct{ io.Writer }{w})
}

// makes refuses a name that nothing which is made may have.
func makes(name string) error {
	switch {
	case name == "":
		return &api.Error{Code: api.CodeBadRequest, Message: "name: the template needs one", Hint: "give it a name of letters, digits and . _ - / : @"}
	case name == hostTemplate:
		return &api.Error{Code: api.CodeTemplateExists, Message: "the template host is made of this host's own tools and stays as it is", Hint: "choose another name"}
	case !api.ValidTemplate(name):
		return &api.Error{Code: api.CodeBadRequest, Message: "name: " + clip(name) + " is not the name of a template", Hint: "a name has letters, digits and . _ - / : @, 128 at most, and begins with a letter or a digit"}
	}
	return nil
}

// importTemplate makes a template from an archive. It is over when the answer
// comes; a client that leaves ends it.
func (s *server) importTemplate(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"name", "replace", "platform", "user", "workdir"}, []string{"env", "entrypoint", "cmd"})
	if err != nil {
		return err
	}
	replace, err := truth(q, "replace")
	if err != nil {
		return err
	}
	if err := makes(q.Get("name")); err != nil {
		return err
	}
	job := template.Job{Kind: template.JobImport, Name: q.Get("name"), Replace: replace, Platform: q.Get("platform"), Config: api.TemplateConfig{
		Env: q["env"], User: q.Get("user"), Workdir: q.Get("workdir"), Entrypoint: q["entrypoint"], Cmd: q["cmd"],
	}}
	made, err := s.job(w, r, job)
	if err != nil {
		return err
	}
	reply(w, http.StatusCreated, made.Template)
	return nil
}

// job runs a job on the body of a request.
func (s *server) job(w http.ResponseWriter, r *http.Request, job template.Job) (template.Made, error) {
	ctx, cancel := s.untilStop(r.Context(), 0)
	defer cancel(nil)
	in := &upload{r: s.stream(w, r), left: r.ContentLength}
	made, err := s.opt.Shelf.Do(ctx, job, in, nil)
	switch {
	case in.err != nil && err != nil:
		return made, in.refusal()
	case err != nil && ctx.Err() != nil && r.Context().Err() == nil:
		return made, errStopping
	}
	return made, err
}
