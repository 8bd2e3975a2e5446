package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/template"
)

// The bounds of the trees of one tenant. Beyond the first two those that were
// not used for longest go.
const (
	maxTrees     = 64
	maxTreeBytes = 16 << 30 // of all layers
	maxTreeChain = 8        // layers of one; a sandbox stacks them on its template's
	maxUploads   = 2        // at a time: each takes memory and disk for a while
)

// agentID is the uid and gid of whoever works in a sandbox.
var agentID = [2]uint32{1000, 1000}

// uses says when trees were used last, by the names of their records.
type uses struct {
	mu      sync.Mutex
	at      map[string]time.Time
	uploads map[string]int // that run, by tenant
}

// upload takes one of a tenant's places for a tree that is sent.
func (u *uses) upload(tenant string) (done func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uploads[tenant] >= maxUploads {
		return nil, &api.Error{Code: api.CodeRate, Message: "trees of your other clients are being uploaded, and only so many can be at a time",
			Hint: "try again when one of them is done", RetryAfter: 2}
	}
	u.uploads[tenant]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.uploads[tenant]--; u.uploads[tenant] == 0 {
			delete(u.uploads, tenant)
		}
	}, nil
}

func (u *uses) now(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[name] = time.Now()
}

// again is now for what is known already: a client cannot make it grow.
func (u *uses) again(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.at[name]; ok {
		u.at[name] = time.Now()
	}
}

// treeName is the record of a tenant's tree. Another tenant's ids lead nowhere.
func treeName(ctx context.Context, id string) (string, error) {
	if !api.ValidID(id) {
		return "", noTree(id)
	}
	return api.TreePrefix + sandbox.CallerOf(ctx).Tenant + "/" + id, nil
}

func noTree(id string) error {
	return &api.Error{Code: api.CodeWorkspaceNotFound, Message: "workspace " + clip(id) + " is not kept, or no longer"}
}

// tree finds a tenant's tree.
func (s *server) tree(ctx context.Context, id string) (name string, root image.Root, err error) {
	if name, err = treeName(ctx, id); err != nil {
		return "", root, err
	}
	if root, err = s.opt.Shelf.Resolve(ctx, name); isCode(err, api.CodeTemplateNotFound) {
		err = noTree(id)
	}
	return name, root, err
}

func (s *server) getTree(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("workspace")
	name, _, err := s.tree(r.Context(), id)
	if err != nil {
		return err
	}
	t, err := s.opt.Shelf.Get(r.Context(), name)
	if err != nil {
		return err
	}
	s.uses.now(name)
	reply(w, http.StatusOK, api.WorkTree{WorkspaceID: id, Layers: len(t.Layers), SizeBytes: t.SizeBytes})
	return nil
}

// createTree keeps a tree, or what has changed since its parent.
func (s *server) createTree(w http.ResponseWriter, r *http.Request) error {
	parent, err := query(r, "parent")
	if err != nil {
		return err
	}
	id := api.NewID(api.KindTree)
	name, err := treeName(r.Context(), id)
	if err != nil {
		return err
	}
	done, err := s.uses.upload(sandbox.CallerOf(r.Context()).Tenant)
	if err != nil {
		return err
	}
	defer done()
	job := template.Job{Kind: template.JobLayer, Name: name, Source: "workspace", Prefix: "/workspace", Owner: &agentID}
	if parent != "" {
		of, root, err := s.tree(r.Context(), parent)
		if err != nil {
			return err
		}
		if len(root.Layers) >= maxTreeChain {
			return &api.Error{Code: api.CodeWorkspaceTooLarge, Message: "this workspace has too many layers for one more", Hint: "upload the tree again, without a parent"}
		}
		s.uses.now(of)
		job.Below = &root
	}
	made, err := s.job(w, r, job)
	if isCode(err, api.CodeTemplateTooLarge) {
		err = &api.Error{Code: api.CodeWorkspaceTooLarge, Message: "the tree is too large: " + public(err).Message}
	}
	if err != nil {
		return err
	}
	s.uses.now(name)
	s.prune(r.Context(), name)
	reply(w, http.StatusCreated, api.WorkTree{WorkspaceID: id, Parent: parent, Layers: len(made.Template.Layers), SizeBytes: made.Template.SizeBytes})
	return nil
}

// prune removes what a tenant has beyond its bounds, the longest unused first,
// but never keep.
func (s *server) prune(ctx context.Context, keep string) {
	all, err := s.opt.Shelf.List(ctx)
	if err != nil {
		return // the next one sees to it
	}
	prefix := keep[:strings.LastIndexByte(keep, '/')+1]
	all = slices.DeleteFunc(all, func(t api.Template) bool { return !strings.HasPrefix(t.Name, prefix) })
	s.uses.mu.Lock()
	last := map[string]time.Time{}
	for _, t := range all {
		at, _ := time.Parse(time.RFC3339Nano, t.CreatedAt)
		last[t.Name] = at
		if used := s.uses.at[t.Name]; used.After(at) {
			last[t.Name] = used
		}
	}
	for name := range s.uses.at {
		if _, there := last[name]; !there && strings.HasPrefix(name, prefix) {
			delete(s.uses.at, name)
		}
	}
	s.uses.mu.Unlock()
	slices.SortFunc(all, func(a, b api.Template) int { // the newest first
		return cmp.Or(-cmp.Compare(boolInt(a.Name == keep), boolInt(b.Name == keep)), last[b.Name].Compare(last[a.Name]))
	})
	counted := map[string]bool{} // layers, which trees share
	var bytes int64
	for i, t := range all {
		for _, l := range t.Layers {
			if !counted[l.Name] {
				counted[l.Name] = true
				bytes += l.SizeBytes
			}
		}
		if i >= maxTrees || i > 0 && bytes > maxTreeBytes {
			s.opt.Shelf.Remove(ctx, t.Name)
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
