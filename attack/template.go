package attack

import (
	"context"
	"time"

	"github.com/bermhq/berm/api"
)

// rootName is the template that grants root, while a case needs it.
const rootName = ownWord + "-root"

// rootTemplate makes a template of the session's that grants root inside. gone
// takes it away again.
func rootTemplate(ctx context.Context, s *Session) (name string, gone func(), err error) {
	b, err := s.Client.BuildTemplate(ctx, api.BuildRequest{Name: rootName, Replace: true, From: s.Template, NoNetwork: true,
		Config: api.TemplateConfig{User: "root"}}, nil)
	if err == nil {
		b, err = s.Client.WaitBuild(ctx, b.ID, nil)
	}
	if err != nil {
		return "", nil, err
	}
	return rootName, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		s.Client.RemoveTemplate(ctx, rootName)
	}, nil
}
