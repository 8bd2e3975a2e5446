package client

import (
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"time"

	"github.com/bermhq/berm/api"
)

// Templates lists what sandboxes start from.
func (c *Client) Templates(ctx context.Context) (list []api.Template, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/templates", nil, &list)
	return list, err
}

// Template returns one of them.
func (c *Client) Template(ctx context.Context, name string) (t api.Template, err error) {
	err = c.call(ctx, http.MethodGet, templatePath(name, ""), nil, &t)
	return t, err
}

// RemoveTemplate forgets a template.
func (c *Client) RemoveTemplate(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, templatePath(name, ""), nil, nil)
}

// ExportTemplate opens a template as an archive: oci, docker or tar; "" is oci.
func (c *Client) ExportTemplate(ctx context.Context, name, format string) (io.ReadCloser, error) {
	q := ""
	if format != "" {
		q = "?format=" + url.QueryEscape(format)
	}
	resp, err := c.do(ctx, http.MethodGet, templatePath(name, "/export"+q), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// An Import says what becomes of an archive.
type Import struct {
	Name     string
	Replace  bool               // a template of that name may exist
	Platform string             // of an archive with several; "": the server's
	Config   api.TemplateConfig // laid over what the archive says
}

// ImportTemplate makes a template from an archive.
func (c *Client) ImportTemplate(ctx context.Context, as Import, archive io.Reader) (t api.Template, err error) {
	q := url.Values{"name": {as.Name}}
	for k, v := range map[string]string{"platform": as.Platform, "user": as.Config.User, "workdir": as.Config.Workdir} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if as.Replace {
		q.Set("replace", "1")
	}
	for k, v := range map[string][]string{"env": as.Config.Env, "entrypoint": as.Config.Entrypoint, "cmd": as.Config.Cmd} {
		if len(v) > 0 {
			q[k] = v
		}
	}
	const path = "/v1/templates/import"
	resp, err := c.do(ctx, http.MethodPost, path+"?"+q.Encode(), archive, http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	return t, decode(resp, maxBody, &t, http.MethodPost, path)
}

// PullTemplate starts to pull req.ImageRef; see WaitBuild.
func (c *Client) PullTemplate(ctx context.Context, req api.BuildRequest) (b api.Build, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/templates/pull", req, &b)
	return b, err
}

// BuildTemplate starts a build; see WaitBuild. files is a tar of what a
// Dockerfile copies from; nil is nothing.
func (c *Client) BuildTemplate(ctx context.Context, req api.BuildRequest, files io.Reader) (b api.Build, err error) {
	const path = "/v1/templates/build"
	if files == nil {
		err = c.call(ctx, http.MethodPost, path, req, &b)
		return b, err
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { w.CloseWithError(writeForm(form, req, files)) }()
	defer r.Close()
	resp, err := c.do(ctx, http.MethodPost, path, r, http.Header{"Content-Type": {form.FormDataContentType()}})
	if err != nil {
		return b, err
	}
	defer resp.Body.Close()
	return b, decode(resp, maxBody, &b, http.MethodPost, path)
}

func writeForm(form *multipart.Writer, req api.BuildRequest, files io.Reader) error {
	part := func(name, kind string) (io.Writer, error) {
		return form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {`form-data; name="` + name + `"; filename="` + name + `"`}, "Content-Type": {kind},
		})
	}
	w, err := part("request", "application/json")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(req); err != nil {
		return err
	}
	if w, err = part("context", "application/x-tar"); err != nil {
		return err
	}
	if _, err := io.Copy(w, files); err != nil {
		return err
	}
	return form.Close()
}

// Builds lists the builds that run or have run lately.
func (c *Client) Builds(ctx context.Context) (list []api.Build, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/templates/builds", nil, &list)
	return list, err
}

// Build says how far a build is.
func (c *Client) Build(ctx context.Context, id string) (b api.Build, err error) {
	err = c.call(ctx, http.MethodGet, buildPath(id, ""), nil, &b)
	return b, err
}

// CancelBuild ends a build.
func (c *Client) CancelBuild(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, buildPath(id, ""), nil, nil)
}

// FollowBuild gives each line of a build to f, until it is over or f returns an
// error.
func (c *Client) FollowBuild(ctx context.Context, id string, f func(line string) error) error {
	return c.stream(ctx, buildPath(id, "/logs?follow=1"), func(_ string, data []byte) error {
		if string(data) == "end" {
			return io.EOF
		}
		return f(string(data))
	})
}

// buildLook is how often WaitBuild looks.
const buildLook = 150 * time.Millisecond

// WaitBuild waits for the end of a build; each, if not nil, is called with
// every state that was seen. A build that failed is an *api.Error. Where ctx
// ends first the build goes on: see CancelBuild.
func (c *Client) WaitBuild(ctx context.Context, id string, each func(api.Build)) (api.Build, error) {
	for {
		var b api.Build
		err := again(ctx, func() (err error) { b, err = c.Build(ctx, id); return err })
		if err != nil {
			return b, err
		}
		if each != nil {
			each(b)
		}
		switch b.Status {
		case api.BuildDone:
			return b, nil
		case api.BuildFailed:
			e := &api.Error{Code: b.Code, Message: b.Error, Hint: b.Hint}
			if e.Code == "" {
				e.Code = api.CodeBuildFailed
			}
			return b, e
		}
		select {
		case <-time.After(buildLook):
		case <-ctx.Done():
			return b, context.Cause(ctx)
		}
	}
}

func templatePath(name, rest string) string {
	return "/v1/templates/" + segment(name) + rest
}

func buildPath(id, rest string) string {
	return "/v1/templates/builds/" + segment(id) + rest
}
